package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/informctl/informctl/cmd/informctl/internal/health"
	"github.com/informctl/informctl/informer"
)

// noteAge says how old the objects are that are printed, unless they are followed now or
// an earlier state was asked for: one line for each reason.
func (o *readOptions) noteAge(db *database, chosen chosen) error {
	if !o.at.IsZero() {
		return nil
	}
	statuses, err := db.statuses()
	if err != nil {
		return err
	}
	var reasons []string
	oldest := map[string]time.Time{}
	for _, v := range chosen.shown() {
		reason, set := freshness(v, statuses)
		if reason == "" {
			continue
		}
		if was, known := oldest[reason]; !known || !set.IsZero() && (was.IsZero() || set.Before(was)) {
			oldest[reason] = set
		}
		if !slices.Contains(reasons, reason) {
			reasons = append(reasons, reason)
		}
	}
	for _, reason := range reasons {
		if set := oldest[reason]; !set.IsZero() {
			reason = fmt.Sprintf("as of %s ago; %s", health.Ago(set, o.now()), reason)
		}
		o.note("%s", reason)
	}
	return nil
}

// shown returns the views that objects are printed of, all where nothing is found.
func (c *chosen) shown() []*view {
	var shown []*view
	for _, i := range c.items {
		if n := len(shown); n > 0 && shown[n-1] == i.view {
			continue
		}
		if !slices.Contains(shown, i.view) {
			shown = append(shown, i.view)
		}
	}
	if len(shown) == 0 {
		return c.views
	}
	return shown
}

// freshness returns why a scope may be behind its server, "" if it is not, and when its
// checkpoint was set.
func freshness(v *view, statuses []informer.Status) (reason string, set time.Time) {
	of := slices.DeleteFunc(slices.Clone(statuses), func(s informer.Status) bool { return s.Scope.ID != v.info.ID })
	switch {
	case len(statuses) == 0:
		return "nothing follows this file", v.info.Checkpoint.Time
	case len(of) == 0:
		return "nothing follows " + v.info.Scope.String(), v.info.Checkpoint.Time
	}
	s := of[0]
	switch {
	case health.IsDisconnected(s):
		reason = "disconnected from the server, and informctl status says why"
	case !s.CaughtUp:
		reason = "not caught up with the server yet"
	}
	return reason, s.Checkpoint.Time
}

// statuses returns the status of each informer of the process that holds the file.
func (d *database) statuses() (statuses []informer.Status, err error) {
	l, ok := d.origin.(*live)
	if !ok {
		return nil, nil
	}
	body, err := l.ask("/v1/status", nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	if err := json.NewDecoder(body).Decode(&statuses); err != nil {
		return nil, l.failed(err)
	}
	return statuses, nil
}
