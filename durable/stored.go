package durable

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/informctl/informctl/store"
)

// Stored describes the consumers of a backend as they were last written, ordered by name.
// No process has them: their scopes have no handlers. The error wraps store.ErrCorrupt if
// something cannot be read; the rest is returned.
func Stored(ctx context.Context, ledger store.Ledger) ([]Status, error) {
	names, errs := ledger.Ledger(ctx, registry)
	out := []Status{}
	for name := range names {
		values, err := ledger.Ledger(ctx, ledgerName(name))
		errs = errors.Join(errs, err)
		out = append(out, stored(name, values, time.Now()))
	}
	slices.SortFunc(out, func(a, b Status) int { return cmp.Compare(a.Name, b.Name) })
	return out, errs
}

// stored describes what a ledger has. Values that cannot be read are left out.
func stored(name string, values map[string][]byte, now time.Time) Status {
	out := Status{Name: name, State: Stopped, Scopes: []ScopeStatus{}}
	var known state
	if json.Unmarshal(values[stateKey], &known) == nil {
		out.Version = known.Version
	}
	for key, value := range values {
		if id, ok := strings.CutPrefix(key, prefixPlace); ok {
			var p place
			if json.Unmarshal(value, &p) != nil {
				continue
			}
			s := ScopeStatus{ID: id, ResourceVersion: p.RV, Missing: p.Handlers}
			if p.Partial {
				s.Everything = partialWhy
			}
			out.Scopes = append(out.Scopes, s)
			continue
		}
		var s keyState
		if !strings.HasPrefix(key, prefixKey) || json.Unmarshal(value, &s) != nil {
			continue
		}
		out.count(s, now)
	}
	slices.SortFunc(out.Scopes, func(a, b ScopeStatus) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// Reset forgets the place and the queue of a consumer that no process has: its handlers
// receive everything at the next start. What it shares is forgotten when the process of
// that start takes it over. The error wraps store.ErrNotFound if there is no such
// consumer.
func Reset(ctx context.Context, ledger store.Ledger, name string) error {
	names, err := ledger.Ledger(ctx, registry)
	if _, ok := names[name]; !ok {
		if err == nil {
			err = store.ErrNotFound
		}
		return fmt.Errorf("consumer %q: %w", name, err)
	}
	// The name goes last: what is left after an error can be reset again.
	b, err := json.Marshal(state{Reset: true})
	if err == nil {
		err = ledger.ReplaceLedger(ctx, ledgerName(name), map[string][]byte{stateKey: b})
	}
	if err == nil {
		err = ledger.SetLedger(ctx, registry, map[string][]byte{name: nil})
	}
	if err != nil {
		return fmt.Errorf("consumer %q: %w", name, err)
	}
	return nil
}
