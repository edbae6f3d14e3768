package audit_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/internal/audit"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/mem"
)

// parse returns objects from lines "NAME UID RV CONTENT".
func parse(lines []string) (objects []corev1.ConfigMap) {
	for _, line := range lines {
		f := strings.Fields(line)
		objects = append(objects, corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: f[0], UID: types.UID(f[1]), ResourceVersion: strings.Trim(f[2], "-")},
			Data:       map[string]string{"v": f[3]},
		})
	}
	return objects
}

func batch(rv string, lines ...string) store.Batch {
	b := store.Batch{RV: rv}
	for _, obj := range parse(lines) {
		b.Changes = append(b.Changes, store.Change{Object: &obj})
	}
	return b
}

func openStore(t *testing.T, b store.Batch) store.Store {
	t.Helper()
	c, err := codec.For(&corev1.ConfigMap{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := mem.New().Open(store.Scope{Resource: "configmaps"}, store.Options{Codec: c})
	if err == nil {
		err = s.Apply(b)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestJudged compares a store that is complete up to 100 with a list of 200: if the store
// does not change, and if it catches up meanwhile.
func TestJudged(t *testing.T) {
	type counts struct{ same, changed, gone, unjudged int }
	for name, tt := range map[string]struct {
		stored, listed []string
		caughtUp       []string // the changes that bring the store to the list; nil: none
		held           string   // what the store had when the audit began, and lacks now
		found          string
		want           counts
	}{
		"same":                            {stored: []string{"a u 7 x"}, listed: []string{"a u 7 x"}, want: counts{same: 1}},
		"other content":                   {stored: []string{"a u 7 x"}, listed: []string{"a u 7 y"}, found: "content a"},
		"other UID at an equal RV":        {stored: []string{"a u 7 x"}, listed: []string{"a v 7 x"}, found: "uid a"},
		"changed since":                   {stored: []string{"a u 7 x"}, listed: []string{"a u 150 y"}, want: counts{changed: 1}},
		"made again since":                {stored: []string{"a u 7 x"}, listed: []string{"a v 150 y"}, want: counts{changed: 1}},
		"changed before":                  {stored: []string{"a u 7 x"}, listed: []string{"a u 100 y"}, found: "version a"},
		"made again before":               {stored: []string{"a u 7 x"}, listed: []string{"a v 99 y"}, found: "uid a"},
		"newer than it ever was":          {stored: []string{"a u 90 x"}, listed: []string{"a u 80 y"}, found: "version a"},
		"newer, but not complete up to":   {stored: []string{"a u 120 x"}, listed: []string{"a u 110 y"}, found: "version a"},
		"newer than the list":             {stored: []string{"a u 210 x"}, listed: []string{"a u 110 y"}, want: counts{changed: 1}},
		"missing":                         {listed: []string{"a u 100 x"}, found: "missing a"},
		"made since":                      {listed: []string{"a u 101 x"}, want: counts{changed: 1}},
		"deleted while it was listed":     {listed: []string{"a u 99 x"}, held: "a", want: counts{changed: 1}},
		"gone, nobody knows when":         {stored: []string{"a u 7 x"}, want: counts{gone: 1}},
		"gone before the store's present": {stored: []string{"a u 7 x"}, caughtUp: []string{}, found: "ghost a"},
		"made after the list":             {stored: []string{"a u 201 x"}, caughtUp: []string{"b u 202 x"}, want: counts{changed: 2}},
		"caught up":                       {stored: []string{"a u 7 x"}, listed: []string{"a u 150 y"}, caughtUp: []string{"a u 150 y"}, want: counts{changed: 1}},
		"caught up without it":            {stored: []string{"a u 7 x"}, listed: []string{"a u 150 y"}, caughtUp: []string{}, found: "version a", want: counts{changed: 1}},
		"no RV to go by":                  {stored: []string{"a u - x"}, listed: []string{"a u 7 y"}, want: counts{unjudged: 1}},
		"no RV at all":                    {stored: []string{"a u - x"}, listed: []string{"a u - y"}, want: counts{unjudged: 1}},
		"not to be compared":              {stored: []string{"a u x1 x", "b u x1 x"}, listed: []string{"a u x2 y"}, want: counts{unjudged: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, batch("100", tt.stored...))
			var found []string
			o := audit.Options{
				List: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
					return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "200"}, Items: parse(tt.listed)}, nil
				},
				Store: s, From: "100", Held: func(key string) bool { return key == tt.held }, Content: true,
				Found: func(f audit.Finding) error {
					found = append(found, f.String())
					return nil
				},
			}
			if tt.caughtUp != nil {
				o.Await = func(_ context.Context, rv string) error { return s.Apply(batch(rv, tt.caughtUp...)) }
			}
			got, err := audit.Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if all := strings.Join(found, ", "); all != tt.found || got.Findings != len(found) {
				t.Errorf("found %q, want %q", all, tt.found)
			}
			if diff := cmp.Diff(tt.want, counts{got.Same, got.Changed, got.Gone, got.Unjudged}, cmp.AllowUnexported(counts{})); diff != "" {
				t.Errorf("counts (-want +got):\n%s", diff)
			}
			if got.RV != "200" || got.Listed != len(tt.listed) {
				t.Errorf("result: %+v", got)
			}
		})
	}
}

var errOnPurpose = errors.New("on purpose")

// TestEnds checks that a server that is behind the store, and each error, ends the audit.
func TestEnds(t *testing.T) {
	s := openStore(t, batch("100", "a u 7 x"))
	list := func(rv string) func(context.Context, metav1.ListOptions) (runtime.Object, error) {
		return func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: rv, Continue: "more"}, Items: parse([]string{"b u 9 y"})}, nil
		}
	}
	good := func() audit.Options {
		return audit.Options{
			List: list("200"), Store: s, From: "100", Content: true,
			Found: func(audit.Finding) error { return nil },
			Pause: func(context.Context) error { return errOnPurpose },
		}
	}
	for name, change := range map[string]func(*audit.Options){
		"pause": func(*audit.Options) {},
		"list": func(o *audit.Options) {
			o.List = func(context.Context, metav1.ListOptions) (runtime.Object, error) { return nil, errOnPurpose }
		},
		"found": func(o *audit.Options) { o.Found = func(audit.Finding) error { return errOnPurpose } },
	} {
		o := good()
		change(&o)
		if _, err := audit.Run(t.Context(), o); !errors.Is(err, errOnPurpose) {
			t.Errorf("%s: error is %v", name, err)
		}
	}
	o := good()
	o.List = list("99")
	if got, err := audit.Run(t.Context(), o); err != nil || got.First != (audit.Finding{Kind: audit.Rewound}) || got.Findings != 1 || got.Listed != 0 {
		t.Errorf("a server that is behind: %+v, %v", got, err)
	}
	o = good()
	o.Transform = func(runtime.Object) (runtime.Object, error) { return nil, errOnPurpose }
	if got, _ := audit.Run(t.Context(), o); got.Unjudged != 1 || got.Findings != 0 {
		t.Errorf("an object that cannot be transformed: %+v", got)
	}
}
