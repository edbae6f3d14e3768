package informer

import (
	"cmp"
	"fmt"
	"os"
	runtimemetrics "runtime/metrics"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/informctl/informctl/reflector"
	"github.com/informctl/informctl/store"
)

// Status is what an informer is doing. Its JSON has times as RFC 3339 and
// durations as seconds; a time is left out where what it is of has not happened.
type Status struct {
	// Time is when the informer was looked at. It is not now where a lock was held
	// for longer than Status waits, as behind a disk that hangs; zero where nothing
	// could be seen yet.
	Time  time.Time   `json:"time,omitzero"`
	Scope ScopeStatus `json:"scope"` // of a Factory's informer empty until it runs

	Persisted bool   `json:"persisted"`                     // false before Run, too
	Memory    string `json:"notPersistedBecause,omitempty"` // "" where no Backend was given, too
	File      string `json:"file,omitempty"`                // the database
	FileBytes int64  `json:"fileBytes"`                     // of all its scopes
	// ProcessBytes is the memory that the process has of the system, as its Go runtime
	// counts it: without what is mapped of files.
	ProcessBytes int64 `json:"processBytes"`
	// MemoryBytes estimates what of that is the scope's: objects that are kept decoded,
	// changes that are not written yet, notifications that wait and the keys of all
	// objects. Not counted are indexes in memory, a list that is under way and objects
	// that wait for handlers decoded. 0 where it is not known: objects that are not
	// persisted were never measured.
	MemoryBytes int64 `json:"memoryBytes,omitempty"`

	Synced   bool   `json:"synced"`                       // HasSynced
	CaughtUp bool   `json:"caughtUp"`                     // what the server had at the start is here
	Behind   string `json:"notCaughtUpBecause,omitempty"` // or why it has stopped
	// Start is how it caught up: "resumed" the watch of the last process, or "listed",
	// because of StartReason; "" until then.
	Start       string `json:"start,omitempty"`
	StartReason string `json:"startReason,omitempty"`

	Objects       int            `json:"objects"`           // held, as readers see them
	Listing       string         `json:"listing,omitempty"` // why the list that is under way is
	Listed        int            `json:"listed"`            // objects received of it, or of the last one
	Lists         int            `json:"lists"`             // finished since the start; 0 after a warm one
	ListsByReason map[string]int `json:"listsByReason,omitempty"`
	Resumes       int            `json:"resumes"` // watches that went on from a held resource version

	Checkpoint   CheckpointStatus `json:"checkpoint"`
	Events       int              `json:"events"` // changes that watches have brought since the start
	LastEvent    time.Time        `json:"lastEvent,omitzero"`
	LastBookmark time.Time        `json:"lastBookmark,omitzero"`

	LastError     string    `json:"lastError,omitempty"` // of list, watch or probe; "" since the last success
	LastErrorTime time.Time `json:"lastErrorTime,omitzero"`
	Errors        int       `json:"errors"` // lists, watches and probes that failed

	// Rejected has the keys of objects whose newest state cannot be stored, and of stored
	// ones that an index function failed for at the start.
	Rejected      []string `json:"-"`
	RejectedCount int      `json:"rejected"`
	RejectedFirst string   `json:"rejectedFirst,omitempty"` // in key order
	Missing       string   `json:"missing,omitempty"`       // why changes are not in the store, until a list

	// Departed is how many objects are kept that were deleted since the start, or before
	// it without a handler having been told, for handlers that come late. DepartedDropped
	// is how many were not, for the bytes that are kept are bounded, or are no longer: they
	// were lost with the file, or wiped.
	Departed        int `json:"departed"`
	DepartedDropped int `json:"departedDropped"`

	// BlockedSeconds is how long the watch has waited for slow handlers, with the wait
	// that is under way.
	BlockedSeconds float64 `json:"blockedSeconds"`

	Audit    *AuditStatus    `json:"audit,omitempty"`   // nil where there are none
	Commits  *CommitStatus   `json:"commits,omitempty"` // nil where nothing is persisted
	Reads    *ReadStatus     `json:"reads,omitempty"`   // the same
	Handlers []HandlerStatus `json:"handlers,omitempty"`
}

// ScopeStatus is a store.Scope for people.
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

// CheckpointStatus is what the store is complete up to. The disk may be behind it
// by a commit interval.
type CheckpointStatus struct {
	RV         string    `json:"resourceVersion,omitempty"`
	Reason     string    `json:"reason,omitempty"` // why there is none
	Time       time.Time `json:"time,omitzero"`    // when it was set
	AgeSeconds float64   `json:"ageSeconds"`       // the same, at Status.Time
}

// CommitStatus says how the writing of changes goes. Counts and durations are of
// the database, since it was opened.
type CommitStatus struct {
	Degraded     bool   `json:"degraded"` // the last attempt to write failed, or too much waits
	Error        string `json:"error,omitempty"`
	PendingBytes int64  `json:"pendingBytes"` // of the scope's changes that are not written yet
	StoredBytes  int64  `json:"storedBytes"`  // of the scope's objects in the file
	// FilePendingBytes is the same of all scopes of the file; more than MaxPendingBytes
	// is too much.
	FilePendingBytes int64 `json:"filePendingBytes"`
	MaxPendingBytes  int64 `json:"maxPendingBytes"`

	Last        time.Time      `json:"last,omitzero"`
	LastSeconds float64        `json:"lastSeconds"`
	Count       int            `json:"count"`
	Seconds     float64        `json:"seconds"` // all of them
	Bytes       int64          `json:"bytes"`   // of the records that they wrote
	Durations   []store.Bucket `json:"-"`       // of seconds and bytes: see store.Commits
	Sizes       []store.Bucket `json:"-"`
	Rebuilds    int            `json:"rebuilds"` // times that the file was damaged or lost, and begun again
}

// ReadStatus says how objects are read and what they cost, since the scope was opened.
type ReadStatus struct {
	Hits   uint64 `json:"decodedHits"`   // of those that were asked for by key
	Misses uint64 `json:"decodedMisses"` // read from the file and decoded
	// LongestSeconds is the longest read transaction of the database: while one is open
	// the file grows.
	LongestSeconds float64 `json:"longestSeconds"`
	// Of objects to bytes and back, compressing included; goroutines add up.
	Encodes       uint64  `json:"encodes"`
	EncodeSeconds float64 `json:"encodeSeconds"`
	Decodes       uint64  `json:"decodes"`
	DecodeSeconds float64 `json:"decodeSeconds"`
	DecodedBytes  int64   `json:"decodedBytes"` // of memory, estimated, for objects that are kept decoded
}

// HandlerStatus is one event handler.
type HandlerStatus struct {
	Type        string `json:"type"`
	Waiting     int    `json:"waiting"`     // notifications, less those that it was given 64 at a time
	BytesInFile int64  `json:"bytesInFile"` // of those that wait in files
	// BytesInMemory is what the others take, but for objects that are decoded, and the
	// keys of those in files. Handlers that wait for the same share some of it.
	BytesInMemory int64 `json:"bytesInMemory"`
	Synced        bool  `json:"synced"`
}

// statusPatience is how long Status waits for locks. Some are held while a page of
// the file is read, or while the file is opened again after a write that failed.
const statusPatience = time.Second

// Status returns a copy of what the informer is doing. It waits a second at most;
// what could not be seen in that time is as of the last call that could: see
// Status.Time. It decodes nothing.
func (inf *Informer) Status() Status {
	t := time.NewTimer(statusPatience)
	defer t.Stop()
	seen := make(chan Status, 1)
	select {
	case inf.looking <- struct{}{}: // one at a time, or a disk that hangs would collect goroutines
	case <-t.C:
		return inf.lastSeen()
	}
	go func() {
		s := inf.look()
		inf.seen.Store(&s)
		<-inf.looking
		seen <- s
	}()
	select {
	case s := <-seen:
		return s
	case <-t.C:
		return inf.lastSeen()
	}
}

func (inf *Informer) lastSeen() Status {
	if s := inf.seen.Load(); s != nil {
		return *s
	}
	return Status{}
}

// look is Status without its patience.
func (inf *Informer) look() Status {
	inf.mu.Lock()
	s := Status{
		Time: time.Now(), Scope: scopeStatus(inf.scope),
		Persisted: inf.isPersistedLocked(), Memory: inf.memory,
		Synced: inf.isSynced, CaughtUp: inf.caughtUp,
		ProcessBytes: processBytes(), BlockedSeconds: inf.blockedLocked().Seconds(),
	}
	if cause := inf.rejected[everything]; cause != nil {
		s.Missing = cause.Error()
	}
	s.Rejected = make([]string, 0, len(inf.rejected)+len(inf.unindexed))
	for key := range inf.rejected {
		if key != everything {
			s.Rejected = append(s.Rejected, key)
		}
	}
	for key := range inf.unindexed {
		if inf.rejected[key] == nil {
			s.Rejected = append(s.Rejected, key)
		}
	}
	s.RejectedCount = len(s.Rejected)
	memory := int64(inf.known.Len()) * keyBytes
	for h := range inf.handlers {
		is := h.statusLocked()
		s.Handlers = append(s.Handlers, is)
		memory += is.BytesInMemory
	}
	if inf.opts.AuditInterval > 0 {
		audited := inf.audited
		s.Audit = &audited
	}
	held, r, started, ended := inf.store, inf.reflector, inf.started, inf.ended
	inf.mu.Unlock()
	s.sort()
	if r != nil {
		s.setReflector(r.Status())
	}
	s.setStore(held)
	if s.Reads != nil && s.Commits != nil {
		s.MemoryBytes = memory + s.Reads.DecodedBytes + s.Commits.PendingBytes
	}
	if path := inf.databasePath(); path != "" && s.Persisted {
		s.File = path
		if info, err := os.Stat(s.File); err == nil {
			s.FileBytes = info.Size()
		}
	}
	s.Behind = s.behind(started, ended, r != nil)
	return s
}

func processBytes() int64 {
	counts := []runtimemetrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	runtimemetrics.Read(counts)
	return int64(counts[0].Value.Uint64() - counts[1].Value.Uint64())
}

func (inf *Informer) isPersistedLocked() bool {
	return inf.opened && inf.opts.Backend != nil && inf.memory == ""
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
	s.Events, s.LastEvent, s.LastBookmark = r.Events, r.LastEvent, r.LastBookmark
	s.LastError, s.LastErrorTime, s.Errors = r.LastError, r.LastErrorTime, r.Errors
}

func (s *Status) setStore(held store.Store) {
	s.Objects = held.Len()
	cp := held.Checkpoint()
	s.Checkpoint = CheckpointStatus{RV: cp.RV, Reason: cp.Reason, Time: cp.Time}
	if !cp.Time.IsZero() {
		s.Checkpoint.AgeSeconds = max(0, s.Time.Sub(cp.Time).Seconds())
	}
	if departer, ok := held.(store.Departer); ok {
		s.Departed, s.DepartedDropped = departer.Departures()
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

// behind says why the informer has not caught up; "" where it has.
func (s *Status) behind(started, ended, opened bool) string {
	switch {
	case ended:
		return "stopped"
	case s.CaughtUp:
		return ""
	case !started:
		return "not started"
	case !opened:
		return "finding out what is listed, and of which cluster"
	case s.LastError != "":
		return s.LastError
	case s.Listing != "":
		return fmt.Sprintf("listing, %d objects so far: %s", s.Listed, s.Listing)
	default:
		return "receiving what has changed since resource version " + s.Checkpoint.RV
	}
}

func (h *handler) statusLocked() HandlerStatus {
	s := HandlerStatus{Type: fmt.Sprintf("%T", h.handler), Synced: h.HasSynced()}
	s.Waiting, s.BytesInFile, s.BytesInMemory = h.waiting.size()
	for _, n := range h.walked {
		s.Waiting++
		s.BytesInMemory += int64(n.encodedBytes())
	}
	return s
}

// keyBytes is the memory that a key takes, about.
const keyBytes = 70

// size is the number of notifications that wait, and the bytes of those in files and
// of memory.
func (b *backlog) size() (n int, inFiles, inMemory int64) {
	n = len(b.first) + len(b.last)
	inMemory = int64(b.firstBytes + b.lastBytes)
	for _, c := range b.chunks {
		n += len(c.keys)
		if c.file == nil {
			inMemory += int64(c.bytes)
			continue
		}
		inFiles += c.size
		inMemory += int64(keyBytes * len(c.keys))
	}
	return n, inFiles, inMemory
}

// Status returns that of each informer which the factory has made and that has not
// ended, sorted by scope. It waits a second at most, as Informer.Status does.
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

// Statuses returns the Status of each informer, in their order. It waits a second at
// most, as Informer.Status does.
func Statuses(infs []*Informer) []Status {
	all := make([]Status, len(infs))
	var wg sync.WaitGroup
	for i, inf := range infs {
		wg.Go(func() { all[i] = inf.Status() }) // one that hangs leaves no other behind
	}
	wg.Wait()
	return all
}

// Informers returns the informers that have not ended, in no order.
func (f *Factory) Informers() []*Informer {
	f.mu.Lock()
	defer f.mu.Unlock()
	infs := make([]*Informer, 0, len(f.informers))
	for inf := range f.informers {
		infs = append(infs, inf)
	}
	return infs
}
