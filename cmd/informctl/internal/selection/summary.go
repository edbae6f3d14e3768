package selection

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"gopkg.in/inf.v0"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
)

// Summary says how the objects that pass are grouped, and what is calculated of each
// group. The zero value groups nothing.
type Summary struct {
	by         []column // without one, all objects are one group
	aggregates []aggregate
}

// aggregate is a calculation over the values of a term.
type aggregate struct {
	verb string // sum, max, min or avg
	column
}

// verbs are the aggregates that there are, with the help of their flags.
var verbs = []struct{ name, usage string }{
	{"sum", "Print the sum of this `field` or expression of each group, numbers or quantities; repeatable."},
	{"max", "Print the largest value of this `field` or expression, as --sum."},
	{"min", "Print the smallest value of this `field` or expression, as --sum."},
	{"avg", "Print the average of the values of this `field` or expression, as --sum."},
}

// complete parses the flag values into the summary.
func (s *Summary) complete(cmd *cobra.Command, text *SieveFlags, now time.Time) error {
	headers := []string{CountHeader}
	for _, key := range text.groupBy {
		c, err := parseColumn("--group-by", key, now)
		if err == nil {
			err = addHeader(&headers, c.header())
		}
		if err != nil {
			return cmdutil.Usagef(cmd, "--group-by: %w", err)
		}
		s.by = append(s.by, c)
	}
	for _, of := range text.aggregates {
		c, err := parseColumn("--"+of.verb, of.term, now)
		a := aggregate{of.verb, c}
		if err == nil {
			err = addHeader(&headers, a.header())
		}
		if err != nil {
			return cmdutil.Usagef(cmd, "--%s: %w", of.verb, err)
		}
		s.aggregates = append(s.aggregates, a)
	}
	return nil
}

// CountHeader is the name of the column of the number of objects.
const CountHeader = "Count"

// addHeader adds the name of a column. A table prints names in capitals.
func addHeader(headers *[]string, name string) error {
	if slices.ContainsFunc(*headers, func(h string) bool { return strings.EqualFold(h, name) }) {
		return fmt.Errorf("there are two columns %q; give one another name with AS", name)
	}
	*headers = append(*headers, name)
	return nil
}

// header returns the name of the aggregate's column.
func (a aggregate) header() string {
	return cmp.Or(a.as, a.verb+"("+a.name()+")")
}

// Asked reports whether a summary is printed instead of objects.
func (s *Summary) Asked() bool { return len(s.by)+len(s.aggregates) > 0 }

// Flag returns the first flag that asks for a summary.
func (s *Summary) Flag() string {
	if len(s.by) > 0 {
		return "--group-by"
	}
	return "--" + s.aggregates[0].verb
}

// Keys returns the names of the keys whose values are those of a Tally.
func (s *Summary) Keys() (names []string) {
	for _, c := range s.by {
		names = append(names, c.header())
	}
	return names
}

// IsOfOneKey reports whether there is one key, which has no name from the user.
func (s *Summary) IsOfOneKey() bool { return len(s.by) == 1 && s.by[0].as == "" }

// Columns returns the names of the aggregates, as sum(PATH).
func (s *Summary) Columns() (names []string) {
	for _, a := range s.aggregates {
		names = append(names, a.header())
	}
	return names
}

// Results returns the results of the aggregates for groups, in the order of Columns. One
// is "" if there is nothing to calculate from. Those of a column have one unit.
func (s *Summary) Results(tallies []*Tally) [][]string {
	results := make([][]string, len(tallies))
	for i, a := range s.aggregates {
		var u unit
		for _, t := range tallies {
			u = max(u, t.amounts[i].unit)
		}
		for n, t := range tallies {
			text := ""
			if q := t.amounts[i].result(a.verb); q != nil {
				text = u.text(*q)
			}
			results[n] = append(results[n], text)
		}
	}
	return results
}

// terms returns all terms of the summary.
func (s *Summary) terms() (terms []term) {
	for _, c := range s.by {
		terms = append(terms, c.term)
	}
	for _, a := range s.aggregates {
		terms = append(terms, a.term)
	}
	return terms
}

// summand is what one object adds to a summary.
type summand struct {
	groups  [][]string  // the values of each group that it is in
	amounts [][]measure // by aggregate
}

// summandOf reads an object. An object is in a group for each combination of its values.
func (s *Summary) summandOf(i source.Item, obj runtime.Object) (out summand, err error) {
	out.groups = [][]string{nil}
	for _, c := range s.by {
		values, err := c.read(i, obj)
		if err != nil {
			return out, err
		}
		values = slices.Compact(slices.Sorted(slices.Values(values)))
		if len(values) == 0 {
			values = []string{cmdutil.NoValue}
		}
		var groups [][]string
		for _, group := range out.groups {
			for _, value := range values {
				groups = append(groups, append(slices.Clone(group), value))
			}
		}
		out.groups = groups
	}
	for _, a := range s.aggregates {
		amounts, err := a.amountsOf(i, obj)
		if err != nil {
			return out, err
		}
		out.amounts = append(out.amounts, amounts)
	}
	return out, nil
}

// amountsOf returns the numbers and quantities among the values of an object.
func (a aggregate) amountsOf(i source.Item, obj runtime.Object) (amounts []measure, err error) {
	values, err := a.read(i, obj)
	if err != nil {
		return nil, err
	}
	kind := ""
	for _, value := range values {
		q, err := parseQuantity(value)
		if err != nil {
			kind = kindOf(value)
			continue
		}
		amounts = append(amounts, measure{q, unitOf(value, q)})
	}
	if kind != "" {
		a.refuse(i, len(amounts) == 0, fmt.Errorf("%s: a value is %s, want a number or a quantity, such as 500m or 1Gi", a.name(), kind))
	}
	return amounts, nil
}

// kindOf returns what a value is that is no number. Messages do not contain the value.
func kindOf(value string) string {
	if value == "true" || value == "false" {
		return "a bool"
	}
	if _, err := time.ParseDuration(value); err == nil {
		return "a duration"
	}
	if _, err := time.Parse(time.RFC3339Nano, value); err == nil {
		return "a time"
	}
	return "a text"
}

// Tally is a group with what was added to it.
type Tally struct {
	Values  []string // by key
	Count   int      // of objects
	amounts []amount // by aggregate
}

// amount is the state of an aggregate.
type amount struct {
	number int64 // of values
	value  resource.Quantity
	unit   unit // the largest of a value
}

func (a *amount) add(verb string, m measure) {
	a.number++
	a.unit = max(a.unit, m.unit)
	q := m.Quantity.DeepCopy()
	switch verb {
	case "sum", "avg":
		a.value.Add(q)
		return
	case "max":
		if a.number > 1 && q.Cmp(a.value) <= 0 {
			return
		}
	case "min":
		if a.number > 1 && q.Cmp(a.value) >= 0 {
			return
		}
	}
	a.value = q
}

// result returns nil if there is nothing to calculate from.
func (a *amount) result(verb string) *resource.Quantity {
	switch {
	case a.number == 0 && verb != "sum":
		return nil
	case verb == "avg":
		quotient := new(inf.Dec).QuoRound(a.value.AsDec(), inf.NewDec(a.number, 0), 2*decimals, inf.RoundHalfUp)
		return resource.NewDecimalQuantity(*quotient, a.value.Format)
	}
	return &a.value
}

// add adds an object to its groups.
func (s *Summary) add(tallies map[string]*Tally, from summand) {
	for _, values := range from.groups {
		key := strings.Join(values, "\x00")
		t := tallies[key]
		if t == nil {
			t = &Tally{Values: values, amounts: make([]amount, len(s.aggregates))}
			tallies[key] = t
		}
		t.Count++
		for i, amounts := range from.amounts {
			for _, m := range amounts {
				t.amounts[i].add(s.aggregates[i].verb, m)
			}
		}
	}
}

// Lacking returns the notes on terms that no object has a value of.
func (s *Summary) Lacking(tallies map[string]*Tally, objects int) (notes []string) {
	note := func(t term, lacks func(*Tally) bool) {
		for _, tally := range tallies {
			if !lacks(tally) {
				return
			}
		}
		notes = append(notes, t.lacks(objects))
	}
	for i, c := range s.by {
		note(c.term, func(tally *Tally) bool { return tally.Values[i] == cmdutil.NoValue })
	}
	for i, a := range s.aggregates {
		note(a.term, func(tally *Tally) bool { return tally.amounts[i].number == 0 })
	}
	return notes
}

// Largest returns at most limit groups, the largest by the first aggregate or, without
// one, by count; 0 means all.
func (s *Summary) Largest(tallies map[string]*Tally, limit int) []*Tally {
	if len(s.by) == 0 && len(tallies) == 0 {
		tallies = map[string]*Tally{"": {amounts: make([]amount, len(s.aggregates))}}
	}
	all := slices.Collect(maps.Values(tallies))
	slices.SortFunc(all, func(a, b *Tally) int {
		if len(s.aggregates) == 0 {
			return cmp.Or(cmp.Compare(b.Count, a.Count), slices.Compare(a.Values, b.Values))
		}
		verb := s.aggregates[0].verb
		return cmp.Or(compareResults(b.amounts[0].result(verb), a.amounts[0].result(verb)), slices.Compare(a.Values, b.Values))
	})
	if limit > 0 {
		all = all[:min(limit, len(all))]
	}
	return all
}

// compareResults orders nil before all quantities.
func compareResults(a, b *resource.Quantity) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	}
	return a.Cmp(*b)
}
