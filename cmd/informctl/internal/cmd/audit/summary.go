package audit

import (
	"errors"
	"fmt"
	"strings"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/internal/audit"
	"github.com/informctl/informctl/store"
)

// summary is what there is to say of the scopes when all are compared.
type summary struct {
	findings int
	compared []compared
	leftOut  int           // scopes that cannot be compared as they are
	said     cmdutil.Alike // what scopes are left out for, or not compared by
}

// compared is a scope with what has come out.
type compared struct {
	store.Info
	audit.Result
}

// nothing returns an error if nothing was found and scopes are left out: "nothing
// differs" would be wrong.
func (s *summary) nothing() error {
	switch {
	case s.leftOut == 0 || s.findings > 0:
		return nil
	case len(s.compared) == 0:
		return errors.New("nothing could be compared")
	}
	return fmt.Errorf("%d of %d resources could not be compared", s.leftOut, s.leftOut+len(s.compared))
}

// note prints one line for each reason and one for all that was compared.
func (s *summary) note(e cmdutil.Env) {
	s.said.Note(e)
	var total audit.Result
	objects := 0
	for _, c := range s.compared {
		objects += c.Objects
		total.Listed += c.Listed
		total.Findings += c.Findings
		total.Same += c.Same
		total.Changed += c.Changed
		total.Gone += c.Gone
		total.Unjudged += c.Unjudged
	}
	var what, held, stored string
	switch len(s.compared) {
	case 0:
		return
	case 1:
		c := s.compared[0]
		what, held, stored = c.Scope.String(), " at RV "+c.RV, " at "+c.Checkpoint.RV
	default:
		what = fmt.Sprintf("%d resources", len(s.compared))
	}
	e.Note("%s", strings.Join([]string{
		fmt.Sprintf("%s: %d objects of the server%s against %d%s: %d differ", what, total.Listed, held, objects, stored, total.Findings),
		fmt.Sprintf("%d are the same", total.Same),
		fmt.Sprintf("%d have changed since", total.Changed),
		fmt.Sprintf("%d are gone since or ghosts", total.Gone),
		fmt.Sprintf("%d cannot be judged", total.Unjudged),
	}, ", "))
}
