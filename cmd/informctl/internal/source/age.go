package source

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/health"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/store"
)

// NoteAge says how old what is printed is, one line for each reason: what is there at a
// moment, now where it is zero, unless it is followed, or was until after that moment.
func (d *Database) NoteAge(ctx context.Context, e cmdutil.Env, views []*View, at store.Place) error {
	if !at.IsZero() && at.Time.IsZero() {
		return nil // the log has the state of a resource version
	}
	statuses, err := d.statuses(ctx)
	if err != nil {
		return err
	}
	var reasons, alone []string
	oldest := map[string]time.Time{}
	for _, v := range views {
		info := d.now(v)
		if IsGone(info) && len(statuses) > 0 {
			continue // the server has nothing of it to follow
		}
		reason, set := freshness(info, statuses, d.isCopy)
		if reason == "" || !at.IsZero() && !at.Time.After(set) {
			if set, err = v.unfollowed(ctx, at.Time); err != nil {
				return err
			}
			if reason = unfollowed; set.IsZero() {
				continue
			}
		}
		if was, known := oldest[reason]; !known || !set.IsZero() && (was.IsZero() || set.Before(was)) {
			oldest[reason] = set
		}
		if reason == unfollowedAlone {
			alone = append(alone, info.Scope.String())
		}
		if !slices.Contains(reasons, reason) {
			reasons = append(reasons, reason)
		}
	}
	for _, reason := range reasons {
		set := oldest[reason]
		if reason == unfollowedAlone {
			reason += cmdutil.Some(alone)
		}
		switch {
		case reason == unfollowed:
			reason = fmt.Sprintf("as of %s before that; %s", health.Ago(set, at.Time), reason)
		case !set.IsZero():
			reason = fmt.Sprintf("as of %s ago; %s", health.Ago(set, e.Now()), reason)
		}
		e.Note("%s", reason)
	}
	return nil
}

const (
	unfollowed      = "nothing followed this file then"
	unfollowedAlone = "nothing follows " // the scopes behind it, but others
)

// unfollowed returns when the content at a moment was last known to be current, if the
// next change in the log may have been made before the moment; else zero.
func (v *View) unfollowed(ctx context.Context, at time.Time) (set time.Time, err error) {
	if at.IsZero() {
		return at, nil
	}
	state, err := v.History()
	if err != nil || at.Before(state.Oldest.Time) {
		return time.Time{}, err
	}
	events := v.Follow(ctx, store.Place{Time: at})
	if !v.ofFile {
		events = v.Changes(ctx, state, store.Place{}, at, store.LogFilter{}, false)
	}
	for e, err := range events {
		switch {
		case err != nil:
			return time.Time{}, err
		case e.Mark != nil || !e.Time.After(at):
			continue
		case e.Since.After(at):
			return time.Time{}, nil
		}
		return e.Since, nil
	}
	return time.Time{}, nil
}

// Unfollowed returns when the content that a scope of a file has at a moment was last
// known to be current, zero if it was current then.
func Unfollowed(ctx context.Context, r store.Reader, info store.Info, at time.Time) (set time.Time, err error) {
	if at.After(info.Checkpoint.Time) {
		return info.Checkpoint.Time, nil
	}
	v := &View{Info: info, Reader: r, ofFile: true}
	return v.unfollowed(ctx, at)
}

// freshness returns why a scope may be behind its server, "" if it is not, and when its
// checkpoint was set. A copy has only what is in the file.
func freshness(info store.Info, statuses []informer.Status, ofCopy bool) (reason string, set time.Time) {
	of := slices.DeleteFunc(slices.Clone(statuses), func(s informer.Status) bool { return s.Scope.ID != info.ID })
	switch {
	case len(statuses) == 0:
		return "nothing follows this file", info.Checkpoint.Time
	case len(of) == 0:
		return unfollowedAlone, info.Checkpoint.Time
	}
	s := of[0]
	switch {
	case ofCopy && s.Memory != "":
		return "what is newer is in memory only, and informctl status says why", info.Checkpoint.Time
	case health.IsDisconnected(s):
		reason = "disconnected from the server, and informctl status says why"
	case !s.CaughtUp:
		reason = "not caught up with the server yet"
	}
	return reason, s.Checkpoint.Time
}

// now returns the description of a scope as it is now, whatever moment is read.
func (d *Database) now(v *View) store.Info {
	for _, info := range d.Scopes {
		if info.ID == v.Info.ID {
			return info
		}
	}
	return v.Info
}

// statuses returns the status of each informer of the process that holds the file, none
// if there is no such process.
func (d *Database) statuses(ctx context.Context) (statuses []informer.Status, err error) {
	if d.IsFile() {
		return nil, nil
	}
	statuses, err = AskFor[[]informer.Status](ctx, d.Path, "/v1/status")
	if errors.Is(err, ErrNobody) {
		return nil, nil // it has ended since it was asked for a copy
	}
	return statuses, err
}
