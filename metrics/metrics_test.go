package metrics_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/metrics"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

func ExampleNew() {
	register := func(registry prometheus.Registerer, factory *informer.Factory) error {
		return registry.Register(metrics.New(factory))
	}
	_ = register
	// Output:
}

// statuses are the statuses that a test wants to export.
type statuses []informer.Status

func (s statuses) Status() []informer.Status { return s }

// everything returns an informer's status with a value for every metric.
func everything() informer.Status {
	at := time.Unix(1700000000, 500e6)
	return informer.Status{
		Time: at, Scope: informer.ScopeStatus{ID: "1234", Resource: "pods", Namespace: "web"},
		Persisted: true, File: "/i.db", FileBytes: 65536, MemoryBytes: 60, Synced: true, CaughtUp: true, Start: "resumed",
		Objects: 7, Lists: 3, ListsByReason: map[string]int{"history was rewound": 1, "the server is behind": 2},
		Resumes: 4, Checkpoint: informer.CheckpointStatus{RV: "9", Time: at}, LastEvent: at, LastBookmark: at,
		Errors: 5, RejectedCount: 6, Departed: 13, DepartedDropped: 14,
		Log:     &informer.LogStatus{Entries: 41, Bytes: 42, Begins: time.Unix(43, 0), Dropped: 44},
		Audit:   &informer.AuditStatus{Count: 11, Last: at, Total: 12},
		Commits: &informer.CommitStatus{Degraded: true, PendingBytes: 10, StoredBytes: 70, FilePendingBytes: 30, MaxPendingBytes: 20, Last: at, LastSeconds: 0.25, Count: 8, Seconds: 1.5, Bytes: 40, Durations: []store.Bucket{{UpTo: 0.5, Count: 6}, {UpTo: 1, Count: 7}}, Sizes: []store.Bucket{{UpTo: 16, Count: 8}}, Rebuilds: 2},
		Reads: &informer.ReadStatus{
			Hits: 21, Misses: 22, LongestSeconds: 0.125,
			Encodes: 31, EncodeSeconds: 0.5, Decodes: 32, DecodeSeconds: 0.75, DecodedBytes: 50,
		},
		Events: 23, BlockedSeconds: 1.25,
		Handlers: []informer.HandlerStatus{
			{Type: "*a.handler", Waiting: 1, BytesInFile: 100, BytesInMemory: 10}, {Type: "*a.handler", Waiting: 2, BytesInFile: 200, BytesInMemory: 20}, {Type: "*b.handler"},
		},
	}
}

// TestMetrics checks the name and the value of every metric.
func TestMetrics(t *testing.T) {
	want := `
informctl_audit_findings_total{namespace="web",resource="pods",scope="1234"} 12
informctl_audits_total{namespace="web",resource="pods",scope="1234"} 11
informctl_caught_up{namespace="web",resource="pods",scope="1234"} 1
informctl_commit_duration_seconds_bucket{file="/i.db",le="0.5"} 6
informctl_commit_duration_seconds_bucket{file="/i.db",le="1"} 7
informctl_commit_duration_seconds_bucket{file="/i.db",le="+Inf"} 8
informctl_commit_duration_seconds_sum{file="/i.db"} 1.5
informctl_commit_duration_seconds_count{file="/i.db"} 8
informctl_commit_size_bytes_bucket{file="/i.db",le="16"} 8
informctl_commit_size_bytes_bucket{file="/i.db",le="+Inf"} 8
informctl_commit_size_bytes_sum{file="/i.db"} 40
informctl_commit_size_bytes_count{file="/i.db"} 8
informctl_decode_seconds_total{namespace="web",resource="pods",scope="1234"} 0.75
informctl_decoded_bytes{namespace="web",resource="pods",scope="1234"} 50
informctl_decoded_hits_total{namespace="web",resource="pods",scope="1234"} 21
informctl_decoded_misses_total{namespace="web",resource="pods",scope="1234"} 22
informctl_decodes_total{namespace="web",resource="pods",scope="1234"} 32
informctl_degraded{namespace="web",resource="pods",scope="1234"} 1
informctl_departed_dropped_total{namespace="web",resource="pods",scope="1234"} 14
informctl_departed_objects{namespace="web",resource="pods",scope="1234"} 13
informctl_encode_seconds_total{namespace="web",resource="pods",scope="1234"} 0.5
informctl_encodes_total{namespace="web",resource="pods",scope="1234"} 31
informctl_errors_total{namespace="web",resource="pods",scope="1234"} 5
informctl_file_bytes{file="/i.db"} 65536
informctl_file_max_pending_bytes{file="/i.db"} 20
informctl_file_pending_bytes{file="/i.db"} 30
informctl_file_rebuilds_total{file="/i.db"} 2
informctl_handler_blocked_seconds_total{namespace="web",resource="pods",scope="1234"} 1.25
informctl_handler_file_bytes{handler="*a.handler",namespace="web",resource="pods",scope="1234"} 300
informctl_handler_file_bytes{handler="*b.handler",namespace="web",resource="pods",scope="1234"} 0
informctl_handler_memory_bytes{handler="*a.handler",namespace="web",resource="pods",scope="1234"} 30
informctl_handler_memory_bytes{handler="*b.handler",namespace="web",resource="pods",scope="1234"} 0
informctl_handler_waiting_notifications{handler="*a.handler",namespace="web",resource="pods",scope="1234"} 3
informctl_handler_waiting_notifications{handler="*b.handler",namespace="web",resource="pods",scope="1234"} 0
informctl_handlers{handler="*a.handler",namespace="web",resource="pods",scope="1234"} 2
informctl_handlers{handler="*b.handler",namespace="web",resource="pods",scope="1234"} 1
informctl_informers 1
informctl_last_audit_timestamp_seconds{namespace="web",resource="pods",scope="1234"} 1.7000000005e+09
informctl_last_bookmark_timestamp_seconds{namespace="web",resource="pods",scope="1234"} 1.7000000005e+09
informctl_last_commit_duration_seconds{file="/i.db"} 0.25
informctl_last_commit_timestamp_seconds{file="/i.db"} 1.7000000005e+09
informctl_last_event_timestamp_seconds{namespace="web",resource="pods",scope="1234"} 1.7000000005e+09
informctl_lists_total{namespace="web",reason="history was rewound",resource="pods",scope="1234"} 1
informctl_lists_total{namespace="web",reason="the server is behind",resource="pods",scope="1234"} 2
informctl_log_begins_timestamp_seconds{namespace="web",resource="pods",scope="1234"} 43
informctl_log_bytes{namespace="web",resource="pods",scope="1234"} 42
informctl_log_dropped_total{namespace="web",resource="pods",scope="1234"} 44
informctl_log_entries{namespace="web",resource="pods",scope="1234"} 41
informctl_longest_read_transaction_seconds{file="/i.db"} 0.125
informctl_memory_bytes{namespace="web",resource="pods",scope="1234"} 60
informctl_objects{namespace="web",resource="pods",scope="1234"} 7
informctl_pending_bytes{namespace="web",resource="pods",scope="1234"} 10
informctl_persisted{namespace="web",resource="pods",scope="1234"} 1
informctl_rejected_objects{namespace="web",resource="pods",scope="1234"} 6
informctl_resource_version_timestamp_seconds{namespace="web",resource="pods",scope="1234"} 1.7000000005e+09
informctl_start_info{namespace="web",reason="",resource="pods",scope="1234",start="resumed"} 1
informctl_start_resumed{namespace="web",resource="pods",scope="1234"} 1
informctl_status_timestamp_seconds{namespace="web",resource="pods",scope="1234"} 1.7000000005e+09
informctl_stored_bytes{namespace="web",resource="pods",scope="1234"} 70
informctl_synced{namespace="web",resource="pods",scope="1234"} 1
informctl_watch_events_total{namespace="web",resource="pods",scope="1234"} 23
informctl_watches_resumed_total{namespace="web",resource="pods",scope="1234"} 4
`
	if got := samples(t, statuses{everything()}); got != strings.TrimSpace(want) {
		t.Errorf("got:\n%s\nwant:%s", got, want)
	}
}

// samples returns the lines of a scrape, without comments.
func samples(t *testing.T, s interface{ Status() []informer.Status }) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(metrics.New(s))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
	}
	lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(text.String()), "\n"), func(l string) bool { return strings.HasPrefix(l, "#") })
	return strings.Join(lines, "\n")
}

// TestNamesAreAsPrometheusWants runs Prometheus' linter.
func TestNamesAreAsPrometheusWants(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(metrics.New(statuses{everything()}))
	problems, err := testutil.GatherAndLint(registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestMetricsOfSeveral checks that informers with the same scope, and informers without a
// known scope, do not cause errors.
func TestMetricsOfSeveral(t *testing.T) {
	twin, other := everything(), everything()
	twin.Persisted, twin.File, twin.Objects, twin.Commits = false, "", 100, nil
	other.Scope.ID, other.Scope.Resource = "5678", "nodes"
	guessed := informer.Status{Scope: informer.ScopeStatus{Resource: "configmaps"}}
	unnamed := informer.Status{Memory: "its client does not use the config of NewFactory"}
	standby := informer.Status{Behind: "not started"} // it is not counted
	got := samples(t, statuses{twin, everything(), twin, other, {}, guessed, unnamed, standby})
	for line, n := range map[string]int{
		"informctl_informers 7": 1,
		`informctl_persisted{namespace="",resource="",scope=""} 0`: 1,
		`resource="configmaps"`: 0,
		`informctl_objects{namespace="web",resource="pods",scope="1234"} 7`:  1,
		`informctl_objects{namespace="web",resource="nodes",scope="5678"} 7`: 1,
		"informctl_objects{":    3,
		"informctl_file_bytes{": 1,
	} {
		if strings.Count(got, line) != n {
			t.Errorf("%s: %d times, want %d, in\n%s", line, strings.Count(got, line), n, got)
		}
	}
}

// TestMetricsOfAnyText checks that bytes that are not UTF-8, for example in a path, are
// replaced.
func TestMetricsOfAnyText(t *testing.T) {
	s := everything()
	s.File, s.Scope.Namespace, s.Scope.Resource, s.Handlers[0].Type = "/\xff.db", "a\xffb", "p\xff", "*h\xff"
	s.ListsByReason = map[string]int{"r\xff": 1, "r\xfe": 2}
	other := s
	// With replaced bytes, they cannot be told from those of the first.
	other.Scope.ID, other.File = "5\xff", "/\xfe.db"
	got := samples(t, statuses{s, other})
	for _, want := range []string{
		`informctl_file_bytes{file="/\uFFFD.db"} 65536`,
		`informctl_objects{namespace="a\uFFFDb",resource="p\uFFFD",scope="1234"} 7`,
		`informctl_objects{namespace="a\uFFFDb",resource="p\uFFFD",scope="5\uFFFD"} 7`,
		`informctl_handlers{handler="*h\uFFFD",namespace="a\uFFFDb",resource="p\uFFFD",scope="1234"} 1`,
		`informctl_lists_total{namespace="a\uFFFDb",reason="r\uFFFD",resource="p\uFFFD",scope="1234"} 3`,
	} {
		if want = strings.ReplaceAll(want, `\uFFFD`, "\uFFFD"); strings.Count(got, want) != 1 {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
}

// TestMetricsOfLittle checks that there is no timestamp for events that have not
// happened.
func TestMetricsOfLittle(t *testing.T) {
	got := samples(t, statuses{{Scope: informer.ScopeStatus{ID: "1", Resource: "pods"}}})
	if strings.Contains(got, "timestamp") || strings.Contains(got, "start_resumed") || !strings.Contains(got, "informctl_synced") {
		t.Error(got)
	}
}

// one is an informer in the form that New takes.
type one struct{ *informer.Informer }

func (o one) Status() []informer.Status { return []informer.Status{o.Informer.Status()} }

// TestMetricsOfAnInformer collects the metrics of a running informer.
func TestMetricsOfAnInformer(t *testing.T) {
	server := fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{})
	if _, err := server.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}); err != nil {
		t.Fatal(err)
	}
	db, err := bolt.Open(filepath.Join(t.TempDir(), "informers.db"), bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	inf, err := informer.New(server, &corev1.ConfigMap{}, informer.Options{Backend: db})
	if err != nil {
		t.Fatal(err)
	}
	if got := samples(t, one{inf}); strings.TrimSpace(got) != "informctl_informers 0" {
		t.Errorf("before it runs:\n%s", got)
	}
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
	done := make(chan struct{})
	go func() {
		defer close(done)
		inf.RunWithContext(ctx)
	}()
	<-inf.HasSyncedChecker().Done()
	got := samples(t, one{inf})
	cancel()
	<-done
	if ended := samples(t, one{inf}); strings.TrimSpace(ended) != "informctl_informers 0" {
		t.Errorf("after its end:\n%s", ended)
	}
	l := `namespace="",resource="configmaps",scope="` + inf.Scope().ID() + `"} `
	for _, want := range []string{
		"informctl_objects{" + l + "1\n", "informctl_synced{" + l + "1\n", "informctl_persisted{" + l + "1\n",
		"informctl_start_resumed{" + l + "0\n",
		`informctl_start_info{namespace="",reason="nothing stored yet",resource="configmaps",scope="` + inf.Scope().ID() + `",start="listed"} 1`,
		"informctl_degraded{" + l + "0\n",
		`informctl_lists_total{namespace="",reason="nothing stored yet",resource="configmaps"`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
}

// TestFileIsTheLatest checks that the metrics of a file are from the newest status, in
// any order of the statuses.
func TestFileIsTheLatest(t *testing.T) {
	now, before := everything(), everything()
	before.Scope.ID, before.Time = "5678", before.Time.Add(-time.Minute)
	commits := *before.Commits
	commits.Rebuilds--
	before.Commits = &commits
	for _, both := range []statuses{{now, before}, {before, now}} {
		if got := samples(t, both); !strings.Contains(got, `informctl_file_rebuilds_total{file="/i.db"} 2`) {
			t.Errorf("%s is not the newest", both[1].Scope.ID)
		}
	}
}

// TestFileCannotBeUsed checks that a scope whose database cannot be used is degraded, and
// has no metrics of a file.
func TestFileCannotBeUsed(t *testing.T) {
	s := everything()
	s.Persisted, s.Memory, s.File, s.Reads = false, "its directory cannot be written", "", nil
	s.Commits = &informer.CommitStatus{Degraded: true, Error: s.Memory}
	got := samples(t, statuses{s})
	if !strings.Contains(got, `informctl_degraded{namespace="web",resource="pods",scope="1234"} 1`) {
		t.Errorf("it is not degraded:\n%s", got)
	}
	for _, name := range []string{"informctl_stored_bytes", "informctl_pending_bytes", "file="} {
		if strings.Contains(got, name) {
			t.Errorf("it has %s:\n%s", name, got)
		}
	}
}
