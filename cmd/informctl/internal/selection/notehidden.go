package selection

import (
	"fmt"
	"slices"
	"strings"

	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/internal/secret"
	"github.com/informctl/informctl/store"
)

// NoteHidden says once which flag asks for values of Secrets that are not shown, so that
// nothing matches, if the user has named their resource.
func (o *Options) NoteHidden(named string, scopes ...store.Scope) {
	secrets := slices.IndexFunc(scopes, store.Scope.IsSecret)
	if o.ShowSecrets || o.hiddenTold || named == "" || secrets < 0 {
		return
	}
	if flag, path := o.Sieve.hidden(); flag != "" {
		o.hiddenTold = true
		o.Env.Note("%s: %s %q may contain values of Secrets, which --show-secrets is for", scopes[secrets].Resource, flag, path)
	}
}

// ScopesOf returns the scopes of views.
func ScopesOf(views []*source.View) (scopes []store.Scope) {
	for _, v := range views {
		scopes = append(scopes, v.Info.Scope)
	}
	return scopes
}

// hidden returns the first flag that reads a field of Secrets that is not shown.
func (s *Sieve) hidden() (flag, path string) {
	if s.Where != nil {
		for _, path := range s.Where.paths {
			if isHidden(path) {
				return "--where", path
			}
		}
	}
	for _, r := range s.Fields {
		if isHidden(r.name()) {
			return r.flag, r.name()
		}
	}
	for _, t := range s.terms() {
		for _, path := range t.reads() {
			if isHidden(path) {
				return t.asks(), path
			}
		}
	}
	return "", ""
}

// isHidden reports whether the value at a path of a Secret is not shown. Of a whole map
// the keys are.
func isHidden(path string) bool {
	whole := []string{"data", "stringData", "metadata", "metadata.annotations"}
	return !secret.Shows(path) && !slices.Contains(whole, path) && !strings.HasPrefix(path, "metadata.managedFields")
}

// pathOf returns the path of the field that an expression reads of a variable, "" if it
// only asks whether a field is there.
func pathOf(e celast.NavigableExpr) (path string) {
	for {
		parent, ok := e.Parent()
		if !ok {
			return path
		}
		switch parent.Kind() {
		case celast.SelectKind:
			if parent.AsSelect().IsTestOnly() {
				return ""
			}
			path = strings.TrimPrefix(path+"."+parent.AsSelect().FieldName(), ".")
		case celast.CallKind:
			call := parent.AsCall()
			if call.FunctionName() != operators.Index || call.Args()[0].ID() != e.ID() {
				return path
			}
			key := "[*]"
			if arg := call.Args()[1]; arg.Kind() == celast.LiteralKind {
				key = fmt.Sprintf("[%v]", arg.AsLiteral().Value())
				if text, ok := arg.AsLiteral().(types.String); ok {
					key = fmt.Sprintf("[%q]", string(text))
				}
			}
			path += key
		default:
			return path
		}
		e = parent
	}
}
