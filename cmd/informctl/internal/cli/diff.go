package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
)

// diffOptions are those of diff.
type diffOptions struct {
	readOptions
	managed bool
}

func newDiffCommand(e env) *cobra.Command {
	o := &diffOptions{readOptions: readOptions{env: e}}
	cmd := &cobra.Command{
		Use:   "diff A B [RESOURCE[,RESOURCE...]]",
		Short: "Print what differs between two files, field by field",
		Long: `Print what differs between two files, field by field.

An object is marked with + where only B has it, - where only A has it, and ~ where it
differs; under it are the fields, with their value in A and in B. Which cluster an
object is of does not matter.

Exit codes: 0 nothing differs, 1 something does, 3 a file is damaged, 4 another error,
64 wrong usage.`,
		Example: `  informctl diff informers.db more.db
  informctl diff informers.db more.db pods -n a`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 || len(args) > 3 {
				return usagef(cmd, "diff takes two files and at most one RESOURCE")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.completeSelection(cmd, args[2:]); err != nil {
				return err
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			differs, err := runDiff(ctx, o, args[0], args[1])
			if err != nil {
				return trouble(err)
			}
			if differs {
				return &statusError{code: exitDiffers}
			}
			return nil
		},
	}
	o.addSelectionFlags(cmd)
	cmd.Flags().BoolVar(&o.managed, "show-managed-fields", false, "Compare the managedFields, too.")
	return cmd
}

// trouble gives an error a code of its own where it would have that of a difference.
func trouble(err error) error {
	if exitCode(err) != exitError {
		return err
	}
	return &statusError{code: exitTrouble, err: err}
}

// pair is one object in the two files; the view of an item is nil where it is not there.
type pair [2]item

func runDiff(ctx context.Context, o *diffOptions, a, b string) (differs bool, err error) {
	o.format.format = "json" // all of an object
	var items [2][]item
	for i, path := range []string{a, b} {
		db, err := openDatabase(path, true) // values are compared, shown or not
		if err != nil {
			return false, err
		}
		defer func() { _ = db.Close() }()
		if _, items[i], err = o.choose(db); err != nil {
			return false, err
		}
	}
	pairs := merge(items[0], items[1])
	m := o.newMeter("comparing", "objects", len(pairs))
	defer m.stop()
	var added, removed, changed int
	err = o.output(func(w io.Writer) error {
		done := 0
		for part := range slices.Chunk(pairs, chunk) {
			if ctx.Err() != nil {
				return errInterrupted
			}
			found := make([][]fieldDiff, len(part))
			err := inParallel(len(part), func(i int) (err error) {
				found[i], err = o.compare(part[i])
				return err
			})
			if err != nil {
				return err
			}
			for i, p := range part {
				mark, of := "~", p[1]
				switch {
				case p[0].view == nil:
					mark = "+"
					added++
				case p[1].view == nil:
					mark, of = "-", p[0]
					removed++
				case len(found[i]) == 0:
					continue
				default:
					changed++
				}
				if _, err := fmt.Fprintf(w, "%s %s %s\n", mark, of.view.info.Scope.Resource, of.key()); err != nil {
					return err
				}
				for _, d := range found[i] {
					if _, err := fmt.Fprintf(w, "    %s: %s -> %s\n", d.path, d.a, d.b); err != nil {
						return err
					}
				}
			}
			done += len(part)
			m.set(done)
		}
		return nil
	})
	if err == nil {
		o.note("%d added, %d removed, %d changed, of %d", added, removed, changed, len(pairs))
	}
	return added+removed+changed > 0, err
}

// merge pairs two sorted lists.
func merge(a, b []item) (out []pair) {
	for len(a) > 0 || len(b) > 0 {
		order := 1
		switch {
		case len(b) == 0:
			order = -1
		case len(a) > 0:
			order = cmp.Or(
				cmp.Compare(a[0].view.info.Scope.Resource, b[0].view.info.Scope.Resource),
				cmp.Compare(a[0].namespace, b[0].namespace),
				cmp.Compare(a[0].name, b[0].name))
		}
		var p pair
		if order <= 0 {
			p[0], a = a[0], a[1:]
		}
		if order >= 0 {
			p[1], b = b[0], b[1:]
		}
		out = append(out, p)
	}
	return out
}

// fieldDiff is a field with its two values.
type fieldDiff struct{ path, a, b string }

// absent stands for the value of a field that is not there.
const absent = "(none)"

// compare returns the fields that differ between two objects.
func (o *diffOptions) compare(p pair) ([]fieldDiff, error) {
	if p[0].view == nil || p[1].view == nil {
		return nil, nil
	}
	var objects [2]runtime.Object
	for i := range p {
		obj, err := p[i].load(true)
		if err != nil {
			return nil, err
		}
		objects[i] = obj.Object
		if m, err := meta.Accessor(obj.Object); err == nil && !o.managed {
			m.SetManagedFields(nil)
		}
	}
	if reflect.TypeOf(objects[0]) == reflect.TypeOf(objects[1]) && equality.Semantic.DeepEqual(objects[0], objects[1]) {
		return nil, nil
	}
	a, err := contentOf(objects[0])
	if err != nil {
		return nil, p[0].wrap(err)
	}
	b, err := contentOf(objects[1])
	if err != nil {
		return nil, p[1].wrap(err)
	}
	found := differences(nil, "", value{a, true}, value{b, true})
	if !o.showSecrets && (isSecrets(p[0].view.info.Scope) || a["kind"] == "Secret" || b["kind"] == "Secret") {
		for i, d := range found {
			found[i] = d.redacted()
		}
	}
	return found, nil
}

// secretPath matches the fields of a Secret that redact leaves out.
var secretPath = regexp.MustCompile(`^(data|stringData|metadata\.annotations)\b`)

// redacted returns the difference without its values, if they are a secret.
func (d fieldDiff) redacted() fieldDiff {
	for _, text := range []*string{&d.a, &d.b} {
		if secretPath.MatchString(d.path) && *text != absent {
			*text = redacted
		}
	}
	return d
}

// plainKey matches a key that needs no quotes in a path.
var plainKey = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// value is one that may be absent.
type value struct {
	any
	is bool
}

func (v value) String() string {
	if !v.is {
		return absent
	}
	text, err := json.Marshal(v.any)
	if err != nil {
		return "?"
	}
	return string(text)
}

// differences appends the paths, in order, at which two values differ.
func differences(found []fieldDiff, path string, a, b value) []fieldDiff {
	if a.is == b.is && reflect.DeepEqual(a.any, b.any) {
		return found
	}
	if x, ok := a.any.(map[string]any); ok {
		if y, ok := b.any.(map[string]any); ok {
			both := maps.Clone(x)
			maps.Copy(both, y)
			for _, key := range slices.Sorted(maps.Keys(both)) {
				at := fmt.Sprintf("%s[%q]", path, key)
				if plainKey.MatchString(key) {
					at = strings.TrimPrefix(path+"."+key, ".")
				}
				found = differences(found, at, entry(x, key), entry(y, key))
			}
			return found
		}
	}
	if x, ok := a.any.([]any); ok {
		if y, ok := b.any.([]any); ok {
			for i := range max(len(x), len(y)) {
				found = differences(found, fmt.Sprintf("%s[%d]", path, i), element(x, i), element(y, i))
			}
			return found
		}
	}
	return append(found, fieldDiff{path, a.String(), b.String()})
}

func entry(m map[string]any, key string) value {
	v, ok := m[key]
	return value{v, ok}
}

func element(list []any, i int) value {
	if i >= len(list) {
		return value{}
	}
	return value{list[i], true}
}
