package informer

import (
	"cmp"
	"fmt"
	"os"
	runtimemetrics "runtime/metrics"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/informctl/informctl/informer/internal/delivery"
	"github.com/informctl/informctl/informer/internal/heal"
	"github.com/informctl/informctl/reflector"
	"github.com/informctl/informctl/store"
)

// Status describes the state of an informer. Its JSON contains times as RFC 3339 and
// durations in seconds; a time is omitted if its event has not happened.
type Status struct {
	// Time is when the state was read. It is in the past if a lock was held for longer
	// than Status waits, for example because a disk hangs. It is zero if nothing could be
	// read yet.
	Time time.Time `json:"time,omitzero"`
	// Scope is a guess from the Go type, without an ID, for a Factory's informer until it
	// has found what it lists.
	Scope ScopeStatus `json:"scope"`

	Persisted bool   `json:"persisted"`                     // also false before Run
	Memory    string `json:"notPersistedBecause,omitempty"` // also "" without a Backend
	File      string `json:"file,omitempty"`                // path of the database
	// FileBytes is the size of the whole file, with all scopes.
	FileBytes int64 `json:"fileBytes"`
	// ProcessBytes is the memory that the Go runtime has obtained from the system. Mapped
	// files are not included.
	ProcessBytes int64 `json:"processBytes"`
	// MemoryBytes estimates the scope's part of ProcessBytes: decoded objects that are
	// kept, changes that are not written yet, handler queues and the keys of all objects.
	// It does not include indexes in memory, a list in progress and decoded objects in
	// handler queues. It is 0 if unknown: objects that are not persisted are not
	// measured.
	MemoryBytes int64 `json:"memoryBytes,omitempty"`

	Synced bool `json:"synced"` // HasSynced
	// CaughtUp says that the server's state at the start is stored.
	CaughtUp bool `json:"caughtUp"`
	// Behind says why CaughtUp is false; it is "stopped" after the end.
	Behind string `json:"notCaughtUpBecause,omitempty"`
	// Start is how the informer caught up: "resumed" the watch of the previous process,
	// or "listed", for StartReason; "" until then.
	Start       string `json:"start,omitempty"`
	StartReason string `json:"startReason,omitempty"`

	// Objects is the number of stored objects, as readers see them.
	Objects int `json:"objects"`
	// Listing is the reason for the list in progress.
	Listing string `json:"listing,omitempty"`
	// Listed is the number of objects received by this list, or by the last one.
	Listed int `json:"listed"`
	// Lists is the number of lists finished since the start; 0 if it resumed.
	Lists         int            `json:"lists"`
	ListsByReason map[string]int `json:"listsByReason,omitempty"`
	// Resumes is the number of watches that resumed from a stored resource version.
	Resumes int `json:"resumes"`

	Checkpoint CheckpointStatus `json:"checkpoint"`
	// Events is the number of changes received from watches since the start.
	Events       int       `json:"events"`
	LastEvent    time.Time `json:"lastEvent,omitzero"`
	LastBookmark time.Time `json:"lastBookmark,omitzero"`
	// LastAnswer is when the server last answered a list or a probe, or ended a watch in
	// order. It is the only sign of the server in a quiet collection without bookmarks,
	// such as Events.
	LastAnswer time.Time `json:"lastAnswer,omitzero"`

	// LastError is that of a list, watch or probe, or that of what the informer needs
	// before it can open its scope; "" after a success.
	LastError     string    `json:"lastError,omitempty"`
	LastErrorTime time.Time `json:"lastErrorTime,omitzero"`
	Errors        int       `json:"errors"` // how often there was one

	// Rejected contains the keys of objects whose newest state cannot be stored, and of
	// stored objects for which an index function failed at the start.
	Rejected      []string `json:"-"`
	RejectedCount int      `json:"rejected"`
	RejectedFirst string   `json:"rejectedFirst,omitempty"` // the first key
	// Missing says why changes are missing in the store, until a list.
	Missing string `json:"missing,omitempty"`

	// Departed is the number of departed objects that are kept for handlers that are
	// added later. DepartedDropped is the number of departed objects that are not kept:
	// they exceeded the limit of bytes, or they were lost with the file or wiped.
	Departed        int `json:"departed"`
	DepartedDropped int `json:"departedDropped"`

	// Log describes what is kept of the changes; nil if the scope is not persisted or
	// nothing is kept yet.
	Log *LogStatus `json:"log,omitempty"`

	// BlockedSeconds is the total time that the watch has waited for slow handlers,
	// including a wait in progress.
	BlockedSeconds float64 `json:"blockedSeconds"`

	Audit *AuditStatus `json:"audit,omitempty"` // nil without audits
	// Commits is nil if the scope is not persisted. If the database cannot be used, it
	// has Degraded and Error only.
	Commits *CommitStatus `json:"commits,omitempty"`
	// Reads is nil if the scope is not persisted.
	Reads    *ReadStatus     `json:"reads,omitempty"`
	Handlers []HandlerStatus `json:"handlers,omitempty"`
}

// ScopeStatus is a store.Scope in readable form.
type ScopeStatus struct {
	ID            string `json:"id"`
	Cluster       string `json:"cluster,omitempty"`
	Resource      string `json:"resource"`
	APIVersion    string `json:"apiVersion"`
	Kind          string `json:"kind"`
	Namespace     string `json:"namespace,omitempty"`
	LabelSelector string `json:"labelSelector,omitempty"`
	FieldSelector string `json:"fieldSelector,omitempty"`
	Form          string `json:"form"` // typed, unstructured, metadata
}

// LogStatus describes the log of a scope: see store.LogState.
type LogStatus struct {
	Entries int       `json:"entries"`
	Bytes   int64     `json:"bytes"`
	Begins  time.Time `json:"begins,omitzero"` // of the oldest change that is kept
	// Complete is the time from which on all changes are kept, and not only deletions.
	Complete time.Time `json:"complete,omitzero"`
	Dropped  uint64    `json:"dropped"` // changes that the bounds have dropped
}

// CheckpointStatus is the checkpoint of the store. The file may be behind it by a commit
// interval.
type CheckpointStatus struct {
	RV         string    `json:"resourceVersion,omitempty"`
	Reason     string    `json:"reason,omitempty"` // why there is no resource version
	Time       time.Time `json:"time,omitzero"`    // as store.Checkpoint.Time
	AgeSeconds float64   `json:"ageSeconds"`       // from Time to Status.Time
}

// CommitStatus describes the commits. Counts and durations are those of the database
// since it was opened.
type CommitStatus struct {
	// Degraded says that the last commit failed, too much is pending, or the database
	// cannot be used.
	Degraded bool   `json:"degraded"`
	Error    string `json:"error,omitempty"`
	// PendingBytes is the size of the scope's changes that are not written yet.
	PendingBytes int64 `json:"pendingBytes"`
	StoredBytes  int64 `json:"storedBytes"` // of the scope's objects in the file
	// FilePendingBytes is PendingBytes of all scopes in the file; more than
	// MaxPendingBytes is too much.
	FilePendingBytes int64 `json:"filePendingBytes"`
	MaxPendingBytes  int64 `json:"maxPendingBytes"`

	Last        time.Time      `json:"last,omitzero"`
	LastSeconds float64        `json:"lastSeconds"`
	Count       int            `json:"count"`
	Seconds     float64        `json:"seconds"` // total duration
	Bytes       int64          `json:"bytes"`   // of the written records
	Durations   []store.Bucket `json:"-"`       // in seconds; see store.Commits
	Sizes       []store.Bucket `json:"-"`
	// Rebuilds is how often a damaged or lost file was replaced.
	Rebuilds int `json:"rebuilds"`
}

// ReadStatus describes reads and their cost since the scope was opened.
type ReadStatus struct {
	Hits uint64 `json:"decodedHits"` // reads by key that found a decoded object
	// Misses is the number of reads by key that decoded an object from the file.
	Misses uint64 `json:"decodedMisses"`
	// LongestSeconds is the longest read transaction of the database: the file grows
	// while one is open.
	LongestSeconds float64 `json:"longestSeconds"`
	// Encodes and Decodes include compression. Durations add up over goroutines.
	Encodes       uint64  `json:"encodes"`
	EncodeSeconds float64 `json:"encodeSeconds"`
	Decodes       uint64  `json:"decodes"`
	DecodeSeconds float64 `json:"decodeSeconds"`
	// DecodedBytes estimates the memory of kept decoded objects.
	DecodedBytes int64 `json:"decodedBytes"`
}

// HandlerStatus describes one event handler.
type HandlerStatus struct {
	Type string `json:"type"`
	// Waiting is the number of notifications, without the up to 64 in delivery.
	Waiting     int   `json:"waiting"`
	BytesInFile int64 `json:"bytesInFile"` // spilled
	// BytesInMemory is the memory of the other notifications, without decoded objects,
	// and of the keys of those in files. Handlers whose queues hold the same objects
	// share some of it.
	BytesInMemory int64 `json:"bytesInMemory"`
	Synced        bool  `json:"synced"`
}

// statusPatience is how long Status waits for locks. Some locks are held while a page of
// the file is read, or while the file is opened again after a failed write.
const statusPatience = time.Second

// Status returns the state of the informer. It waits for at most a second. If the state
// could not be read in that time, it returns the result of the last successful call: see
// Status.Time. It decodes nothing.
func (inf *Informer) Status() Status {
	t := time.NewTimer(statusPatience)
	defer t.Stop()
	seen := make(chan Status, 1)
	select {
	// One call at a time reads the state: a hanging disk must not accumulate goroutines.
	case inf.looks.looking <- struct{}{}:
	case <-t.C:
		return inf.looks.last()
	}
	go func() {
		s := look(inf)
		inf.looks.seen.Store(&s)
		<-inf.looks.looking
		seen <- s
	}()
	select {
	case s := <-seen:
		return s
	case <-t.C:
		return inf.looks.last()
	}
}

// looks are the calls of Status.
type looks struct {
	looking chan struct{} // capacity 1: held by the goroutine that reads the state
	seen    atomic.Pointer[Status]
}

// last returns the result of the last call that could read the state.
func (l *looks) last() Status {
	if s := l.seen.Load(); s != nil {
		return *s
	}
	return Status{}
}

// look returns the state of the informer. It waits for locks without a limit.
func look(inf *Informer) Status {
	synced := inf.HasSynced() // before the phase: what has synced has caught up
	inf.mu.Lock()             // the store is opened with this lock held
	is, scope := inf.state.Report(), scopeStatus(inf.scope)
	if inf.factory != nil && !inf.found {
		scope.ID = ""
	}
	held, pipeline := inf.content.present(), inf.pipeline
	inf.mu.Unlock()
	s := Status{
		Time: time.Now(), Scope: scope,
		Persisted: is.Life.IsOpened() && inf.opener.isPersistent(),
		Synced:    synced, CaughtUp: is.Life.IsCaughtUp(),
		ProcessBytes: processBytes(),
		Rejected:     is.Rejected, RejectedCount: len(is.Rejected),
	}
	if is.Missing != nil {
		s.Missing = is.Missing.Error()
	}
	if inf.opts.AuditInterval > 0 {
		audited := AuditStatus(inf.audits.Tally())
		s.Audit = &audited
	}
	waited := inf.opener.report(&s)
	s.BlockedSeconds = inf.hub.Blocked().Seconds()
	handlers, known := inf.hub.Status()
	memory := int64(known) * delivery.KeyBytes
	for _, h := range handlers {
		s.Handlers = append(s.Handlers, HandlerStatus(h))
		memory += h.BytesInMemory
	}
	s.sort()
	if pipeline != nil {
		s.setReflector(pipeline.Reflector().Status())
	} else {
		s.LastError, s.LastErrorTime = waited.last, waited.time
	}
	s.Errors += waited.n
	s.setStore(held)
	if s.Reads != nil && s.Commits != nil {
		s.MemoryBytes = memory + s.Reads.DecodedBytes + s.Commits.PendingBytes
	}
	if path := inf.opener.path(); path != "" && s.Persisted {
		s.File = path
		if info, err := os.Stat(s.File); err == nil {
			s.FileBytes = info.Size()
		}
	}
	s.Behind = s.behind(is.Life.Phase())
	return s
}

func processBytes() int64 {
	counts := []runtimemetrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	runtimemetrics.Read(counts)
	return int64(counts[0].Value.Uint64() - counts[1].Value.Uint64())
}

// report sets what the opener knows, and returns for what it has waited.
func (o *opener) report(s *Status) waits {
	o.mu.Lock()
	defer o.mu.Unlock()
	s.Memory = o.memory
	if o.unusable {
		s.Commits = &CommitStatus{Degraded: true, Error: o.memory}
	}
	return o.waited
}

func (s *Status) sort() {
	slices.Sort(s.Rejected)
	if len(s.Rejected) > 0 {
		s.RejectedFirst = s.Rejected[0]
	}
	slices.SortFunc(s.Handlers, func(a, b HandlerStatus) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(b.Waiting, a.Waiting))
	})
}

func scopeStatus(s store.Scope) ScopeStatus {
	version, kind := s.Kind.ToAPIVersionAndKind()
	return ScopeStatus{
		ID: s.ID(), Cluster: s.Cluster, Resource: s.Resource, APIVersion: version, Kind: kind,
		Namespace: s.Namespace, LabelSelector: s.LabelSelector, FieldSelector: s.FieldSelector, Form: s.Form.String(),
	}
}

func (s *Status) setReflector(r reflector.Status) {
	s.Start, s.StartReason, s.Resumes = r.Start, r.StartReason, r.Resumes
	s.Listing, s.Listed, s.Lists, s.ListsByReason = r.Listing, r.Listed, r.Lists, r.Reasons
	s.Events, s.LastEvent, s.LastBookmark, s.LastAnswer = r.Events, r.LastEvent, r.LastBookmark, r.LastAnswer
	s.LastError, s.LastErrorTime, s.Errors = r.LastError, r.LastErrorTime, r.Errors
}

func (s *Status) setStore(held store.Store) {
	s.Objects = held.Len()
	cp := held.Checkpoint()
	s.Checkpoint = CheckpointStatus{RV: cp.RV, Reason: cp.Reason, Time: cp.Time}
	if !cp.Time.IsZero() {
		// A monotonic clock stands still while the machine sleeps.
		s.Checkpoint.AgeSeconds = max(0, s.Time.Round(0).Sub(cp.Time).Seconds())
	}
	if departer, ok := held.(store.Departer); ok {
		s.Departed, s.DepartedDropped = departer.Departures()
	}
	if log, err := held.History(); err == nil && s.Persisted && !log.Begins.IsZero() {
		s.Log = &LogStatus{Entries: log.Entries, Bytes: log.Bytes, Begins: log.Begins, Complete: log.Oldest.Time, Dropped: log.Dropped}
	}
	if counter, ok := held.(store.ReadCounter); ok {
		r := counter.Reads()
		s.Reads = &ReadStatus{
			Hits: r.Hits, Misses: r.Misses, LongestSeconds: r.Longest.Seconds(),
			Encodes: r.Encodes.Count, EncodeSeconds: r.Encodes.Took.Seconds(),
			Decodes: r.Decodes.Count, DecodeSeconds: r.Decodes.Took.Seconds(), DecodedBytes: r.DecodedBytes,
		}
	}
	committer, ok := held.(store.Committer)
	if !ok {
		return
	}
	c := committer.Commits()
	s.Commits = &CommitStatus{
		PendingBytes: c.Waiting, StoredBytes: c.Stored, FilePendingBytes: c.AllWaiting, MaxPendingBytes: c.MaxWaiting,
		Last: c.Last, LastSeconds: c.LastTook.Seconds(), Count: c.Count, Seconds: c.Took.Seconds(),
		Bytes: c.Bytes, Durations: c.Durations, Sizes: c.Sizes, Rebuilds: c.Rebuilds,
	}
	var wrong []string
	if c.Err != nil {
		wrong = append(wrong, c.Err.Error())
	}
	if why := c.TooMuchWaits(); why != "" {
		wrong = append(wrong, why)
	}
	s.Commits.Degraded, s.Commits.Error = len(wrong) > 0, strings.Join(wrong, "; ")
}

// behind returns the reason why the informer has not caught up, or "".
func (s *Status) behind(in heal.Phase) string {
	switch {
	case in == heal.Ended:
		return "stopped"
	case s.CaughtUp:
		return ""
	case in == heal.Created:
		return "not started"
	case in == heal.Opening && s.Memory != "":
		return "it does not run: " + s.Memory
	case in == heal.Opening && s.LastError != "":
		return "finding out what is listed, and of which cluster: " + s.LastError
	case in == heal.Opening:
		return "finding out what is listed, and of which cluster"
	case s.LastError != "":
		return s.LastError
	case s.Listing != "":
		return fmt.Sprintf("listing, %d objects so far: %s", s.Listed, s.Listing)
	default:
		return "receiving what has changed since resource version " + s.Checkpoint.RV
	}
}

// Status returns the Status of each informer of the factory that has not ended, sorted by
// scope. It waits for at most a second, like Informer.Status.
func (f *Factory) Status() []Status {
	all := Statuses(f.Informers())
	slices.SortStableFunc(all, func(a, b Status) int {
		x, y := a.Scope, b.Scope
		return cmp.Or(
			cmp.Compare(x.Resource, y.Resource), cmp.Compare(x.Namespace, y.Namespace),
			cmp.Compare(x.LabelSelector, y.LabelSelector), cmp.Compare(x.FieldSelector, y.FieldSelector),
			cmp.Compare(x.Form, y.Form), cmp.Compare(x.ID, y.ID), cmp.Compare(a.Memory, b.Memory),
		)
	})
	return all
}

// Statuses returns the Status of each informer, in the order of the argument. It waits
// for at most a second, like Informer.Status.
func Statuses(infs []*Informer) []Status {
	all := make([]Status, len(infs))
	var wg sync.WaitGroup
	for i, inf := range infs {
		// In parallel, so that one that hangs does not delay the others.
		wg.Go(func() { all[i] = inf.Status() })
	}
	wg.Wait()
	return all
}

// Informers returns the informers that have not ended, in the order in which they were
// made.
func (f *Factory) Informers() []*Informer {
	f.mu.Lock()
	defer f.mu.Unlock()
	infs := make([]*Informer, 0, len(f.informers))
	for inf := range f.informers {
		infs = append(infs, inf)
	}
	slices.SortFunc(infs, func(a, b *Informer) int { return cmp.Compare(f.informers[a], f.informers[b]) })
	return infs
}
