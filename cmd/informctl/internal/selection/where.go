package selection

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/cel-go/cel"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apimachinery/pkg/runtime"
	kversion "k8s.io/apimachinery/pkg/util/version"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
)

// Condition is an expression of --where. An object does not match if the expression fails
// for it, most often because it lacks a field. Failures are counted: an expression that
// fails for every object is most likely a mistake of the user.
type Condition struct {
	text    string
	program cel.Program
	fields  []string // top-level fields of the object that the expression reads
	whole   bool     // the expression may read all fields
	paths   []string // of the fields that it reads of all variables

	// GoesOn means that an object for which the expression takes too many steps does not
	// match, as one that it has no answer for: it must not end a watch of others.
	GoesOn bool

	asked, lacking, failing atomic.Int64
	missing                 atomic.Pointer[string] // a field that one of them lacks
	wrong                   atomic.Pointer[string] // an error of a failing object
}

// whereVariable is the name of the object in an expression.
const whereVariable = "object"

// OldVariable is the name of the state before a change, as in admission.
const OldVariable = "oldObject"

// nowFunction returns the function now of an expression. It always returns the same
// moment, so that a state of an object has one answer during the whole command.
func nowFunction(now time.Time) cel.EnvOption {
	return cel.Function("now", cel.Overload("now", nil, cel.TimestampType,
		cel.FunctionBinding(func(...ref.Val) ref.Val { return types.Timestamp{Time: now} })))
}

// ParseCondition compiles an expression with now and the functions of Kubernetes' CEL
// environment. others are names of variables beside object.
func ParseCondition(text string, now time.Time, others ...string) (*Condition, error) {
	options := []cel.EnvOption{cel.Variable(whereVariable, cel.DynType), nowFunction(now)}
	for _, name := range others {
		options = append(options, cel.Variable(name, cel.DynType))
	}
	base := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	set, err := base.Extend(environment.VersionedOptions{
		IntroducedVersion: kversion.MajorMinor(1, 0),
		EnvOptions:        options,
	})
	if err != nil {
		return nil, err
	}
	env := set.StoredExpressionsEnv()
	ast, issues := env.Compile(text)
	if issues.Err() != nil {
		return nil, compileError(text, issues)
	}
	if out := ast.OutputType(); out != cel.BoolType && out != cel.DynType {
		return nil, fmt.Errorf("the expression is of type %s, and has to be a bool", out)
	}
	program, err := env.Program(ast)
	if err != nil {
		return nil, err
	}
	c := &Condition{text: text, program: program}
	for _, e := range celast.MatchDescendants(celast.NavigateAST(ast.NativeRep()), celast.KindMatcher(celast.IdentKind)) {
		if name := e.AsIdent(); name == whereVariable || slices.Contains(others, name) {
			if path := pathOf(e); path != "" {
				c.paths = append(c.paths, path)
			}
		}
		if e.AsIdent() != whereVariable {
			continue
		}
		parent, ok := e.Parent()
		if !ok || parent.Kind() != celast.SelectKind {
			c.whole = true
			continue
		}
		c.fields = append(c.fields, parent.AsSelect().FieldName())
	}
	return c, nil
}

// compileError describes the first error and its position.
func compileError(text string, issues *cel.Issues) error {
	first := issues.Errors()[0]
	at, line := first.Location.Column(), first.Location.Line()
	lines := strings.Split(text, "\n")
	if line < 1 || line > len(lines) || at < 0 {
		return errors.New(first.Message)
	}
	where := fmt.Sprintf("column %d", at+1)
	if len(lines) > 1 {
		where = fmt.Sprintf("line %d, %s", line, where)
	}
	return &cmdutil.PointedError{
		Err:    fmt.Errorf("%s: %s", where, first.Message),
		Source: lines[line-1],
		Column: at,
	}
}

// matches evaluates the expression. It is safe for concurrent use. Its error is
// errCostly.
func (c *Condition) matches(obj runtime.Object) (bool, error) {
	return c.holds(map[string]any{whereVariable: celValue(obj)})
}

// MatchesChange does what matches does for a change. A state that is nil was not there.
func (c *Condition) MatchesChange(before, after runtime.Object) (bool, error) {
	return c.holds(map[string]any{whereVariable: celValue(after), OldVariable: celValue(before)})
}

// celValue returns the value of an object; null if it is nil.
func celValue(obj runtime.Object) any {
	if obj == nil {
		return types.NullValue
	}
	if u, ok := obj.(runtime.Unstructured); ok {
		return u.UnstructuredContent()
	}
	// The value converts fields when they are read.
	return common.SchemalessTypedToVal(obj)
}

// errCostly ends a command at the first object for which the expression exceeds the limit
// that Kubernetes sets. That takes a fifth of a second for one object, and the expression
// would most likely exceed it for all others.
var errCostly = fmt.Errorf("--where takes more than %d steps for this object, as loops in loops do; ask for less of it", celconfig.PerCallLimit)

const tooManySteps = "it takes too many steps"

func (c *Condition) holds(variables map[string]any) (bool, error) {
	c.asked.Add(1)
	out, _, err := c.program.Eval(variables)
	if err == nil {
		if answer, ok := out.(types.Bool); ok {
			return bool(answer), nil
		}
		err = fmt.Errorf("the expression is of type %s, and has to be a bool", typeName(out))
	}
	var cancelled interpreter.EvalCancelledError
	if errors.As(err, &cancelled) && cancelled.Cause == interpreter.CostLimitExceeded {
		if !c.GoesOn {
			return false, errCostly
		}
		err = errors.New(tooManySteps)
	}
	c.fail(err)
	return false, nil
}

func typeName(v ref.Val) string {
	if v == nil {
		return "null"
	}
	return v.Type().TypeName()
}

// fail records a failure. It does not keep the text of most errors, which may contain the
// object's values.
func (c *Condition) fail(err error) {
	text := err.Error()
	for _, lack := range []string{"no such key", "index out of bounds"} {
		if !strings.HasPrefix(text, lack) {
			continue
		}
		c.lacking.Add(1)
		if key, ok := strings.CutPrefix(text, "no such key: "); ok && strings.Contains(c.text, key) {
			c.missing.Store(&key)
		}
		return
	}
	c.failing.Add(1)
	what := "it failed"
	for _, known := range []string{
		"the expression is of type ", "no such overload", "division by zero", "modulus by zero", "integer overflow",
		"type conversion error", tooManySteps,
	} {
		if strings.HasPrefix(text, known) {
			if what = known; known == "the expression is of type " {
				what = text
			}
		}
	}
	c.wrong.Store(&what)
}

// verdict returns what a user should know after the last object. It returns an error if
// the expression failed for every object, and not only because fields are missing.
func (c *Condition) verdict() (note string, err error) {
	asked, lacking, failing := c.asked.Load(), c.lacking.Load(), c.failing.Load()
	missing, wrong := c.missing.Load(), c.wrong.Load()
	switch {
	case failing > 0 && lacking+failing == asked:
		return "", fmt.Errorf("--where has no answer for any of %d objects: %s", asked, *wrong)
	case failing > 0:
		return fmt.Sprintf("--where has no answer for %d of %d objects, which count as not matching: %s", failing, asked, *wrong), nil
	case missing != nil && lacking == asked:
		return fmt.Sprintf("none of %d objects has the field %q that --where asks for", asked, *missing), nil
	}
	return "", nil
}
