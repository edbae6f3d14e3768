package source

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/url"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/internal/wire"
)

func (s *liveScope) Changes(_ context.Context, since time.Time, live bool, head func(wire.HistoryHead)) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		parameters := url.Values{"scope": {s.info.ID}, "secrets": {s.Secrets}, "follow": {strconv.FormatBool(live)}}
		if !since.IsZero() {
			parameters.Set("since", since.Format(time.RFC3339Nano))
		}
		body, err := s.Ask("/v1/history", parameters)
		if err != nil {
			yield(Change{}, err)
			return
		}
		defer func() { _ = body.Close() }()
		dec := json.NewDecoder(body)
		var first struct {
			wire.HistoryHead
			wire.Failure
		}
		if err := dec.Decode(&first); err != nil || first.Text != "" {
			if err == nil {
				err = &first.Failure
			}
			yield(Change{}, s.Failed(err))
			return
		}
		head(first.HistoryHead)
		for {
			var line struct {
				wire.HistoryLine
				wire.Failure
			}
			err := dec.Decode(&line)
			switch {
			case errors.Is(err, io.EOF):
				return
			case err == nil && line.Text != "":
				err = &line.Failure
			}
			if err != nil {
				yield(Change{}, s.Failed(err))
				return
			}
			c := Change{line.Key, line.RV, line.Since, line.Time, sentState(line.Old), sentState(line.New)}
			if !yield(c, nil) {
				return
			}
		}
	}
}

// sentState returns a state as the process has sent it.
func sentState(sent *wire.HistoryState) *Encoded {
	switch {
	case sent == nil:
		return nil
	case sent.Object == nil:
		return &Encoded{}
	}
	return &Encoded{func() (runtime.Object, error) {
		u := &unstructured.Unstructured{}
		return u, u.UnmarshalJSON(sent.Object)
	}}
}
