package selection

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/cel-go/cel"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/overloads"
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

// expression is a compiled expression in CEL. It is safe for concurrent use.
type expression struct {
	text    string
	program cel.Program
	out     *cel.Type // of the result
	fields  []string  // top-level fields of the object that the expression reads
	whole   bool      // the expression may read all fields
	paths   []string  // of the fields that it reads of all variables
}

// objectVariable is the name of the object in an expression.
const objectVariable = "object"

// OldVariable is the name of the state before a change, as in admission.
const OldVariable = "oldObject"

// nowFunction returns the function now of an expression. It always returns the same
// moment, so that a state of an object has one answer during the whole command.
func nowFunction(now time.Time) cel.EnvOption {
	return cel.Function("now", cel.Overload("now", nil, cel.TimestampType,
		cel.FunctionBinding(func(...ref.Val) ref.Val { return types.Timestamp{Time: now} })))
}

// durationFunction returns the function duration of a string, with days and weeks beside
// the units that CEL has. It takes the place of CEL's own.
func durationFunction() cel.EnvOption {
	return cel.Function(overloads.TypeConvertDuration, cel.Overload(overloads.StringToDuration, []*cel.Type{cel.StringType}, cel.DurationType,
		cel.UnaryBinding(func(v ref.Val) ref.Val {
			text, ok := v.(types.String)
			if !ok {
				return types.MaybeNoSuchOverloadErr(v)
			}
			d, err := cmdutil.ParseDuration(string(text))
			if err != nil {
				return types.NewErr(noDuration)
			}
			return types.Duration{Duration: d}
		})))
}

// noDuration is the error of the function duration. It does not contain the text, which
// may be a value of the object.
const noDuration = "a text is no duration, such as " + cmdutil.Durations

// compile compiles an expression with now and the functions of Kubernetes' CEL
// environment. others are names of variables beside object.
func compile(text string, now time.Time, others ...string) (*expression, error) {
	options := []cel.EnvOption{cel.Variable(objectVariable, cel.DynType), nowFunction(now), durationFunction()}
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
	program, err := env.Program(ast)
	if err != nil {
		return nil, err
	}
	e := &expression{text: text, program: program, out: ast.OutputType()}
	e.findFields(ast, others)
	return e, nil
}

// findFields finds the fields that the expression reads of its variables.
func (e *expression) findFields(ast *cel.Ast, others []string) {
	for _, v := range celast.MatchDescendants(celast.NavigateAST(ast.NativeRep()), celast.KindMatcher(celast.IdentKind)) {
		if name := v.AsIdent(); name == objectVariable || slices.Contains(others, name) {
			if path := pathOf(v); path != "" {
				e.paths = append(e.paths, path)
			}
		}
		if v.AsIdent() != objectVariable {
			continue
		}
		parent, ok := v.Parent()
		if !ok || parent.Kind() != celast.SelectKind {
			e.whole = true
			continue
		}
		e.fields = append(e.fields, parent.AsSelect().FieldName())
	}
}

// compileError describes the first error and its position.
func compileError(text string, issues *cel.Issues) error {
	first := issues.Errors()[0]
	message := first.Message
	if message == "invalid duration argument" {
		message += "; write " + cmdutil.Durations
	}
	at, line := first.Location.Column(), first.Location.Line()
	lines := strings.Split(text, "\n")
	if line < 1 || line > len(lines) || at < 0 {
		return errors.New(message)
	}
	where := fmt.Sprintf("column %d", at+1)
	if len(lines) > 1 {
		where = fmt.Sprintf("line %d, %s", line, where)
	}
	return &cmdutil.PointedError{
		Err:    fmt.Errorf("%s: %s", where, message),
		Source: lines[line-1],
		Column: at,
	}
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

// errCostly is the error of an expression that exceeds the limit that Kubernetes sets.
var errCostly = errors.New("it takes too many steps")

// costly returns the error that ends a command at the first object for which the
// expression of a flag is errCostly. That takes a fifth of a second for one object, and
// the expression would most likely exceed the limit for all others.
func costly(flag string) error {
	return fmt.Errorf("%s takes more than %d steps for this object, as loops in loops do; ask for less of it", flag, celconfig.PerCallLimit)
}

// lackError is the error of an expression for an object that lacks a field, or an element
// of a list.
type lackError struct {
	field string // a field that the expression names; may be ""
}

func (*lackError) Error() string { return "a field is missing" }

// eval evaluates the expression. Its error is errCostly, a lackError, or one whose text
// contains no values of the object.
func (e *expression) eval(variables map[string]any) (ref.Val, error) {
	out, _, err := e.program.Eval(variables)
	if err == nil {
		return out, nil
	}
	var cancelled interpreter.EvalCancelledError
	if errors.As(err, &cancelled) && cancelled.Cause == interpreter.CostLimitExceeded {
		return nil, errCostly
	}
	text := err.Error()
	if key, ok := strings.CutPrefix(text, "no such key: "); ok && strings.Contains(e.text, key) {
		return nil, &lackError{key}
	}
	for _, lack := range []string{"no such key", "index out of bounds"} {
		if strings.HasPrefix(text, lack) {
			return nil, &lackError{}
		}
	}
	for _, known := range []string{
		"no such overload", "division by zero", "modulus by zero", "integer overflow", "type conversion error", noDuration,
	} {
		if strings.HasPrefix(text, known) {
			return nil, errors.New(known)
		}
	}
	return nil, errors.New("it failed")
}

func typeName(v ref.Val) string {
	if v == nil {
		return "null"
	}
	return v.Type().TypeName()
}
