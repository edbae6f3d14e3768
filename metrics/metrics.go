// Package metrics exports the state of informers to Prometheus. It is a separate module,
// so that users of the informer do not depend on Prometheus' client.
//
// # Labels
//
// A metric of one informer has the labels scope (the ID of the informer's scope, which is
// stable across restarts), resource and namespace. If several informers have the same
// scope, all but one of them are in memory: the other one is exported, or the first if
// all are. One that was not started or has ended is not exported. A metric of a file has
// the path of the file. An informer of a Factory that has not found its scope yet is
// counted only in informctl_informers; one whose scope cannot be found, so that it is in
// memory, is exported with the resource that its type suggests, or none. Bytes that are
// not valid UTF-8, which Prometheus does not accept, are replaced by U+FFFD.
//
// docs/metrics.md lists all metrics; deploy/grafana-dashboard.json and deploy/alerts.yaml
// use them.
package metrics

import (
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/store"
)

// New returns a collector of the statuses of f: an *informer.Factory, or several
// informers together. Each collection calls f.Status once and blocks as long as that
// call. The collector is safe for concurrent use, as f is.
func New(f interface{ Status() []informer.Status }) prometheus.Collector {
	return collector{f}
}

type collector struct {
	f interface{ Status() []informer.Status }
}

var (
	ofScope   = []string{"scope", "resource", "namespace"}
	ofStart   = append(slices.Clone(ofScope), "start", "reason")
	ofReason  = append(slices.Clone(ofScope), "reason")
	ofHandler = append(slices.Clone(ofScope), "handler")
	ofFile    = []string{"file"}
)

func describe(name, help string, labels []string) *prometheus.Desc {
	return prometheus.NewDesc("informctl_"+name, help, labels, nil)
}

var (
	informers = describe("informers", "Informers that were started and have not ended.", nil)

	objects    = describe("objects", "Objects that readers of the informer see.", ofScope)
	rejected   = describe("rejected_objects", "Objects whose newest state cannot be stored.", ofScope)
	synced     = describe("synced", "1 when the informer has synced, else 0.", ofScope)
	caughtUp   = describe("caught_up", "1 when what the server had at the start has been received, else 0.", ofScope)
	persisted  = describe("persisted", "1 when objects go to the file, 0 when they are held in memory only.", ofScope)
	resumed    = describe("start_resumed", "1 when the start resumed the last process' watch, 0 when it listed; missing until it is known.", ofScope)
	started    = describe("start_info", "1, with how the start reached the server's state, and why if by a list; missing until it is known.", ofStart)
	versioned  = describe("resource_version_timestamp_seconds", "When the resource version that the objects are complete up to was set, or taken away.", ofScope)
	lastEvent  = describe("last_event_timestamp_seconds", "When the watch last brought a change.", ofScope)
	bookmarked = describe("last_bookmark_timestamp_seconds", "When the watch last brought a bookmark.", ofScope)
	looked     = describe("status_timestamp_seconds", "When the informer was looked at; not now while its disk hangs.", ofScope)

	lists    = describe("lists_total", "Lists of the whole collection that were finished, by reason.", ofReason)
	resumes  = describe("watches_resumed_total", "Watches that went on from a held resource version.", ofScope)
	failures = describe("errors_total", "Lists, watches and probes that failed.", ofScope)

	events  = describe("watch_events_total", "Changes that watches have brought.", ofScope)
	blocked = describe("handler_blocked_seconds_total", "How long the watch has waited for slow handlers, until now.", ofScope)
	hits    = describe("decoded_hits_total", "Objects that were asked for by key and found decoded.", ofScope)
	misses  = describe("decoded_misses_total", "Objects that were asked for by key, read from the file and decoded.", ofScope)

	encodes       = describe("encodes_total", "Objects that were encoded.", ofScope)
	encodeSeconds = describe("encode_seconds_total", "How long encoding and compressing objects took; goroutines add up.", ofScope)
	decodes       = describe("decodes_total", "Objects that were decoded.", ofScope)
	decodeSeconds = describe("decode_seconds_total", "How long decompressing and decoding objects took; goroutines add up.", ofScope)

	audits   = describe("audits_total", "Comparisons of all objects with the server's that have ended.", ofScope)
	findings = describe("audit_findings_total", "Objects that audits have found to be other than the server's, as of another history.", ofScope)
	audited  = describe("last_audit_timestamp_seconds", "When the last audit ended.", ofScope)

	departed        = describe("departed_objects", "Deleted objects that are kept for handlers that come late.", ofScope)
	logEntries      = describe("log_entries", "Changes that the log keeps.", ofScope)
	logBytes        = describe("log_bytes", "Size of the log, encoded.", ofScope)
	logBegins       = describe("log_begins_timestamp_seconds", "When the oldest change that the log keeps was written.", ofScope)
	logDropped      = describe("log_dropped_total", "Changes that the bounds of the log have dropped.", ofScope)
	departedDropped = describe("departed_dropped_total", "Deleted objects that are not kept for handlers that come late.", ofScope)

	stored   = describe("stored_bytes", "The scope's objects in the file, as they are compressed.", ofScope)
	degraded = describe("degraded", "1 when the last attempt to write to the file failed, too much waits for it or it cannot be used, else 0.", ofScope)
	pending  = describe("pending_bytes", "Changes that are not in the file yet.", ofScope)

	memory  = describe("memory_bytes", "Memory that the scope takes, estimated, where it is persisted.", ofScope)
	decoded = describe("decoded_bytes", "Memory of objects that are kept decoded, estimated.", ofScope)

	handlers = describe("handlers", "Event handlers, by type.", ofHandler)
	waiting  = describe("handler_waiting_notifications", "Notifications that wait for handlers of a type.", ofHandler)
	spilled  = describe("handler_file_bytes", "Notifications that wait in files for handlers of a type.", ofHandler)
	held     = describe("handler_memory_bytes", "Notifications that wait in memory for handlers of a type, but for objects that are decoded.", ofHandler)

	fileBytes  = describe("file_bytes", "Size of the file.", ofFile)
	allPending = describe("file_pending_bytes", "Changes of all scopes that are not in the file yet.", ofFile)
	maxPending = describe("file_max_pending_bytes", "More changes that are not in the file than this are degraded; nothing is dropped.", ofFile)
	commits    = describe("commit_duration_seconds", "How long transactions took that wrote changes, since the file was opened; first lists are others.", ofFile)
	sizes      = describe("commit_size_bytes", "Records that such transactions wrote.", ofFile)
	rebuilds   = describe("file_rebuilds_total", "Times that the file was damaged or lost, and begun again.", ofFile)
	lastCommit = describe("last_commit_timestamp_seconds", "When the last transaction was committed.", ofFile)
	longest    = describe("longest_read_transaction_seconds", "The longest read transaction since the file was opened; while one is open the file grows.", ofFile)
	lastTook   = describe("last_commit_duration_seconds", "How long the last transaction took.", ofFile)
)

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		informers,
		objects, rejected, synced, caughtUp, persisted, resumed, started, versioned, lastEvent, bookmarked, looked,
		lists, resumes, failures,
		events, blocked, hits, misses,
		encodes, encodeSeconds, decodes, decodeSeconds,
		audits, findings, audited, departed, departedDropped, logEntries, logBytes, logBegins, logDropped,
		stored, degraded, pending,
		memory, decoded,
		handlers, waiting, spilled, held,
		fileBytes, allPending, maxPending, commits, sizes, rebuilds, lastCommit, longest, lastTook,
	} {
		ch <- d
	}
}

// Status.Behind of an informer whose Run was not called, as in a standby, and of one that
// has ended. They have no metrics: alerts would wait for what they do not do.
const notStarted, stopped = "not started", "stopped"

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	running := slices.DeleteFunc(c.f.Status(), func(s informer.Status) bool { return s.Behind == notStarted || s.Behind == stopped })
	ch <- gauge(informers, float64(len(running)))
	byScope, byFile := map[string]informer.Status{}, map[string]informer.Status{}
	for _, s := range running {
		if s.Scope.ID == "" && s.Memory == "" {
			continue
		}
		id := valid(s.Scope.ID)
		if other, twice := byScope[id]; !twice || s.Persisted && !other.Persisted {
			byScope[id] = s
		}
		if s.File == "" {
			continue
		}
		// The status of a scope may be old. Using an older one would decrease the file's
		// counters.
		file := valid(s.File)
		if other, known := byFile[file]; !known || other.Time.Before(s.Time) {
			byFile[file] = s
		}
	}
	for _, s := range byScope {
		collectScope(ch, s)
		collectHandlers(ch, s)
	}
	for file, s := range byFile {
		collectFile(ch, file, s)
	}
}

func labels(s informer.Status, more ...string) []string {
	return append([]string{valid(s.Scope.ID), valid(s.Scope.Resource), valid(s.Scope.Namespace)}, more...)
}

// valid returns a valid label value: client_golang panics if a value is not UTF-8.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func collectScope(ch chan<- prometheus.Metric, s informer.Status) {
	l := labels(s)
	ch <- gauge(objects, float64(s.Objects), l...)
	ch <- gauge(rejected, float64(s.RejectedCount), l...)
	ch <- gauge(synced, number(s.Synced), l...)
	ch <- gauge(caughtUp, number(s.CaughtUp), l...)
	ch <- gauge(persisted, number(s.Persisted), l...)
	if s.Start != "" {
		ch <- gauge(resumed, number(s.Start == "resumed"), l...)
		// Lists are counted by the same key.
		reason, _, _ := strings.Cut(s.StartReason, ": ")
		ch <- gauge(started, 1, labels(s, s.Start, valid(reason))...)
	}
	stamp(ch, versioned, s.Checkpoint.Time, l...)
	stamp(ch, lastEvent, s.LastEvent, l...)
	stamp(ch, bookmarked, s.LastBookmark, l...)
	stamp(ch, looked, s.Time, l...)
	byReason := map[string]int{}
	for reason, n := range s.ListsByReason {
		byReason[valid(reason)] += n
	}
	for reason, n := range byReason {
		ch <- counter(lists, n, labels(s, reason)...)
	}
	ch <- counter(resumes, s.Resumes, l...)
	ch <- counter(failures, s.Errors, l...)
	ch <- counter(events, s.Events, l...)
	ch <- counter(blocked, s.BlockedSeconds, l...)
	if s.Reads != nil {
		ch <- gauge(decoded, float64(s.Reads.DecodedBytes), l...)
		ch <- counter(hits, s.Reads.Hits, l...)
		ch <- counter(misses, s.Reads.Misses, l...)
		ch <- counter(encodes, s.Reads.Encodes, l...)
		ch <- counter(encodeSeconds, s.Reads.EncodeSeconds, l...)
		ch <- counter(decodes, s.Reads.Decodes, l...)
		ch <- counter(decodeSeconds, s.Reads.DecodeSeconds, l...)
	}
	if s.MemoryBytes > 0 {
		ch <- gauge(memory, float64(s.MemoryBytes), l...)
	}
	if s.Audit != nil {
		ch <- counter(audits, s.Audit.Count, l...)
		ch <- counter(findings, s.Audit.Total, l...)
		stamp(ch, audited, s.Audit.Last, l...)
	}
	ch <- gauge(departed, float64(s.Departed), l...)
	ch <- counter(departedDropped, s.DepartedDropped, l...)
	if log := s.Log; log != nil {
		ch <- gauge(logEntries, float64(log.Entries), l...)
		ch <- gauge(logBytes, float64(log.Bytes), l...)
		ch <- gauge(logBegins, float64(log.Begins.UnixMilli())/1000, l...)
		ch <- counter(logDropped, log.Dropped, l...)
	}
	if s.Commits != nil {
		ch <- gauge(degraded, number(s.Commits.Degraded), l...)
	}
	if s.Commits != nil && s.Memory == "" {
		ch <- gauge(stored, float64(s.Commits.StoredBytes), l...)
		ch <- gauge(pending, float64(s.Commits.PendingBytes), l...)
	}
}

// collectHandlers adds up the handlers of one type, because handlers have no names.
func collectHandlers(ch chan<- prometheus.Metric, s informer.Status) {
	type sum struct{ handlers, waiting, inFile, inMemory float64 }
	byType := map[string]sum{}
	for _, h := range s.Handlers {
		name := valid(h.Type)
		t := byType[name]
		byType[name] = sum{t.handlers + 1, t.waiting + float64(h.Waiting), t.inFile + float64(h.BytesInFile), t.inMemory + float64(h.BytesInMemory)}
	}
	for name, t := range byType {
		l := labels(s, name)
		ch <- gauge(handlers, t.handlers, l...)
		ch <- gauge(waiting, t.waiting, l...)
		ch <- gauge(spilled, t.inFile, l...)
		ch <- gauge(held, t.inMemory, l...)
	}
}

func collectFile(ch chan<- prometheus.Metric, file string, s informer.Status) {
	ch <- gauge(fileBytes, float64(s.FileBytes), file)
	if s.Reads != nil {
		ch <- gauge(longest, s.Reads.LongestSeconds, file)
	}
	if c := s.Commits; c != nil {
		ch <- histogram(commits, c.Count, c.Seconds, c.Durations, file)
		ch <- histogram(sizes, c.Count, float64(c.Bytes), c.Sizes, file)
		stamp(ch, lastCommit, c.Last, file)
		ch <- counter(rebuilds, c.Rebuilds, file)
		ch <- gauge(allPending, float64(c.FilePendingBytes), file)
		ch <- gauge(maxPending, float64(c.MaxPendingBytes), file)
		ch <- gauge(lastTook, c.LastSeconds, file)
	}
}

func gauge(d *prometheus.Desc, v float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func counter[N int | int64 | uint64 | float64](d *prometheus.Desc, n N, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}

func histogram(d *prometheus.Desc, n int, sum float64, buckets []store.Bucket, labels ...string) prometheus.Metric {
	counts := make(map[float64]uint64, len(buckets))
	for _, b := range buckets {
		counts[b.UpTo] = b.Count
	}
	return prometheus.MustNewConstHistogram(d, uint64(n), sum, counts, labels...)
}

// stamp sends a time if it is set.
func stamp(ch chan<- prometheus.Metric, d *prometheus.Desc, t time.Time, labels ...string) {
	if !t.IsZero() {
		ch <- gauge(d, float64(t.UnixMilli())/1000, labels...)
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
