package selection

import (
	"cmp"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/internal/parallel"
	"github.com/informctl/informctl/store"
)

// Sieve contains the conditions of query that need decoded objects, and how the result is
// sorted, grouped and limited. The zero value passes all objects unchanged.
type Sieve struct {
	Where   *Condition
	Fields  []Requirement // all must hold
	since   time.Duration // 0 means any age
	sortBy  *path
	descend bool // sort the largest first
	Summary Summary
	Limit   int // of objects or, with a summary, of groups; 0 means all
	explain bool
}

// SieveFlags are the flag values of a Sieve.
type SieveFlags struct {
	where, fields, since, sortBy string
	groupBy                      []string

	// in the order of the command line
	aggregates []struct{ verb, term string }
}

// Add adds the flags. Complete parses text afterwards.
func (s *Sieve) Add(cmd *cobra.Command, text *SieveFlags) {
	flags := cmd.Flags()
	text.AddConditions(flags)
	flags.StringVar(&text.since, "since", "", "Only objects created or changed within this time: 30m, 12h, 7d.")
	flags.StringVar(&text.sortBy, "sort-by", "", "Sort by this field, a JSONPath as kubectl has it.")
	flags.BoolVar(&s.descend, "descending", false, "With --sort-by: the largest first, objects without the field last.")
	flags.StringArrayVar(&text.groupBy, "group-by", nil, "Print how many objects have each value of this `field` or expression; repeatable: each combination.")
	for _, verb := range verbs {
		flags.Func(verb.name, verb.usage, func(term string) error {
			text.aggregates = append(text.aggregates, struct{ verb, term string }{verb.name, term})
			return nil
		})
	}
	flags.IntVar(&s.Limit, "limit", 0, "At most this many objects, after sorting; with --group-by, this many groups, the largest.")
	flags.BoolVar(&s.explain, "explain", false, "Say which index was used and how many objects were looked at.")
}

// AddConditions adds the flags of the conditions that one object fulfils or not.
func (text *SieveFlags) AddConditions(flags *pflag.FlagSet) {
	flags.StringVar(&text.where, "where", "", "Only objects for which this `expression` of object in CEL is true.")
	cmdutil.RefuseEmpty(flags, "where", "it is no expression")
	flags.StringVar(&text.fields, "field-selector", "", "Only objects whose fields match: PATH=VALUE, PATH!=VALUE, separated by commas; any field.")
}

// Complete parses the flag values into the sieve and the filter.
func (s *Sieve) Complete(cmd *cobra.Command, text *SieveFlags, f *Filter, now time.Time) (err error) {
	if text.where != "" {
		if s.Where, err = ParseCondition(text.where, now); err != nil {
			return cmdutil.Usagef(cmd, "--where: %w", err)
		}
	}
	requirements, err := ParseFieldSelector(text.fields)
	if err != nil {
		return cmdutil.Usagef(cmd, "--field-selector %q: %w", text.fields, err)
	}
	f.Fields = requirements
	for _, r := range requirements {
		if !r.onKey() {
			s.Fields = append(s.Fields, r)
		}
	}
	if text.since != "" {
		if s.since, err = cmdutil.ParseSince(text.since); err != nil {
			return cmdutil.Usagef(cmd, "--since: %w", err)
		}
	}
	if text.sortBy != "" {
		if s.sortBy, err = parsePath("--sort-by", text.sortBy); err != nil {
			return cmdutil.Usagef(cmd, "--sort-by: %w", err)
		}
	}
	if s.descend && s.sortBy == nil {
		return cmdutil.Usagef(cmd, "--descending needs --sort-by")
	}
	if err := s.Summary.complete(cmd, text, now); err != nil {
		return err
	}
	if s.Limit < 0 {
		return cmdutil.Usagef(cmd, "--limit is %d, and has to be 0 or more", s.Limit)
	}
	return nil
}

// Restart forgets which objects were asked, since they will be asked again.
func (s *Sieve) Restart() {
	for _, r := range s.Fields {
		r.restart()
	}
	if s.Where != nil {
		s.Where.restart()
	}
}

// verdicts returns what a user should know about the conditions after the last object,
// and the error of the first that makes sense of no object.
func (s *Sieve) verdicts() (notes []string, err error) {
	add := func(note string, verdictErr error) {
		if note != "" {
			notes = append(notes, note)
		}
		err = cmp.Or(err, verdictErr)
	}
	for _, r := range s.Fields {
		add(r.verdict())
	}
	for _, t := range s.terms() {
		add(t.verdict())
	}
	if s.Where != nil {
		add(s.Where.verdict())
		add(s.Where.unanswered(), nil)
	}
	return notes, err
}

// terms returns the terms of the summary and the path of --sort-by.
func (s *Sieve) terms() []term {
	terms := s.Summary.terms()
	if s.sortBy != nil {
		terms = append(terms, s.sortBy)
	}
	return terms
}

// SortedBy returns the path of --sort-by, which must be set.
func (s *Sieve) SortedBy() string { return s.sortBy.name() }

// Decodes reports whether the sieve needs decoded objects.
func (s *Sieve) Decodes() bool {
	return s.Where != nil || len(s.Fields) > 0 || s.since > 0 || s.sortBy != nil || s.Summary.Asked()
}

// parts returns the top-level fields of an object that the sieve reads. all is true if
// they are not known.
func (s *Sieve) parts() (names []string, all bool) {
	if s.since > 0 {
		names = append(names, metadataField)
	}
	if s.Where != nil {
		names, all = append(names, s.Where.fields...), s.Where.whole
	}
	for _, r := range s.Fields {
		names = append(names, r.tops()...)
	}
	for _, t := range s.terms() {
		names = append(names, t.tops()...)
	}
	return names, all || slices.Contains(names, "")
}

// Sifted is the result of sift.
type Sifted struct {
	Items    []source.Item
	Tallies  map[string]*Tally // the groups of the summary
	Unsorted bool              // no object has the field of --sort-by
}

// Sift returns the items that pass, in the order of output. It decodes objects in chunks
// and does not keep them. It calls looked with the number of objects that it has read.
func (s *Sieve) Sift(items []source.Item, now time.Time, looked func(int)) (Sifted, error) {
	out := Sifted{Tallies: map[string]*Tally{}}
	limit := s.Limit
	if limit == 0 || s.Summary.Asked() {
		limit = len(items)
	}
	if !s.Decodes() {
		out.Items = items[:min(limit, len(items))]
		for _, i := range out.Items {
			i.View.Search.Matched++
		}
		return out, nil
	}
	var order []sortValue
	var tests [source.ChunkSize]tested
	oldest := s.oldest(now)
	done := 0
	for part, err := range source.InParts(items, source.Record) {
		if err != nil {
			return out, err
		}
		err := parallel.Do(len(part.Items), func(i int) (err error) {
			tests[i], err = s.test(part.Items[i], part.Objects[i], oldest)
			return err
		})
		if err != nil {
			return out, err
		}
		done += len(part.Items)
		looked(done)
		for i, t := range tests[:len(part.Items)] {
			part.Items[i].View.Search.Decoded++
			if !t.passes || s.sortBy == nil && len(out.Items) >= limit {
				continue
			}
			part.Items[i].View.Search.Matched++
			out.Items, order = append(out.Items, part.Items[i]), append(order, t.order)
			if s.Summary.Asked() {
				s.Summary.add(out.Tallies, t.summand)
			}
		}
		if s.sortBy == nil && len(out.Items) >= limit {
			break
		}
	}
	if s.sortBy != nil {
		out.Unsorted = !slices.ContainsFunc(order, func(v sortValue) bool { return v.known })
		out.Items = sorted(out.Items, order, s.descend)
		out.Items = out.Items[:min(limit, len(out.Items))]
	}
	return out, nil
}

// tested is the result for one object.
type tested struct {
	passes  bool
	order   sortValue
	summand summand
}

func (s *Sieve) test(i source.Item, e store.Entry, oldest time.Time) (t tested, err error) {
	obj, err := i.Load(e)
	if err != nil || obj == nil {
		return t, err
	}
	if t.passes, err = s.Passes(i, obj, oldest); err != nil {
		return t, i.Wrap(err)
	}
	if t.passes && s.sortBy != nil {
		t.order = sortValueOf(i, s.sortBy, obj)
	}
	if t.passes && s.Summary.Asked() {
		if t.summand, err = s.Summary.summandOf(i, obj); err != nil {
			return t, i.Wrap(err)
		}
	}
	return t, nil
}

// Passes tests the cheapest conditions first.
func (s *Sieve) Passes(i source.Item, obj runtime.Object, oldest time.Time) (bool, error) {
	if s.since > 0 {
		at, err := changedAt(obj)
		if err != nil || at.Before(oldest) {
			return false, err
		}
	}
	for _, r := range s.Fields {
		if !r.Matches(i, obj) {
			return false, nil
		}
	}
	if s.Where == nil {
		return true, nil
	}
	return s.Where.matches(obj)
}

// sorted sorts items by their values. Items with equal values keep the order of output.
func sorted(items []source.Item, order []sortValue, descend bool) []source.Item {
	at := make([]int, len(items))
	for i := range at {
		at[i] = i
	}
	slices.SortFunc(at, func(a, b int) int {
		first, second := order[a], order[b]
		if descend {
			first, second = second, first
		}
		return cmp.Or(first.compare(second), cmp.Compare(a, b))
	})
	out := make([]source.Item, len(items))
	for i, from := range at {
		out[i] = items[from]
	}
	return out
}

// oldest returns the earliest permitted time of the last change; zero means any time.
func (s *Sieve) oldest(now time.Time) time.Time {
	if s.since == 0 {
		return time.Time{}
	}
	return now.Add(-s.since)
}
