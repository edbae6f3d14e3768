package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// state is the server's answer after a change.
type state struct {
	RV string // the current resource version
}

// control changes the collection on request; see changeNow, changeAtRate, lose and reset.
// The answer is the resulting state.
func (s *server) control(w http.ResponseWriter, r *http.Request) {
	count, _ := strconv.Atoi(r.URL.Query().Get("count")) // a missing count is 0
	rate, _ := strconv.Atoi(r.URL.Query().Get("rate"))
	switch r.URL.Path {
	case "/control/reset":
		s.reset(count)
	case "/control/change":
		if rate > 0 {
			s.changeAtRate(r.Context(), count, rate)
		} else {
			s.changeNow(count)
		}
	case "/control/lose":
		s.lose(count)
	default:
		http.NotFound(w, r)
		return
	}
	s.mu.Lock()
	answer := state{RV: strconv.FormatUint(s.now, 10)}
	s.mu.Unlock()
	_ = json.NewEncoder(w).Encode(answer) // fails only if the client has gone
}

// reset restores the first state and history, and then advances the resource version by
// ahead, as writes to other collections would.
func (s *server) reset(ahead int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.items, s.log, s.pages, s.next = slices.Clone(s.origin), nil, map[uint64][]item{}, 0
	s.now = firstRV + 1 + uint64(len(s.items)+ahead)
	s.oldest = firstRV + 1 + uint64(len(s.items))
}

// changeLocked changes one object. It changes each object once before it changes one
// again.
func (s *server) changeLocked() entry {
	const stride = 7919 // prime, so that changes are spread over all objects
	i := s.next * stride % len(s.items)
	s.next++
	s.now++
	s.items[i] = s.items[i].with(s.now, time.Now().UnixNano())
	return entry{rv: s.now, item: s.items[i]}
}

func (s *server) wakeLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *server) changeNow(count int) {
	for range count {
		s.mu.Lock()
		s.log = append(s.log, s.changeLocked())
		s.wakeLocked()
		s.mu.Unlock()
	}
}

// changeAtRate blocks until all changes are made, with rate changes per second.
func (s *server) changeAtRate(ctx context.Context, count, rate int) {
	begin := time.Now()
	for i := range count {
		due := begin.Add(time.Duration(i) * time.Second / time.Duration(rate))
		select {
		case <-time.After(time.Until(due)):
		case <-ctx.Done():
			return
		}
		s.changeNow(1)
	}
}

// lose changes objects and drops the history. Open watches end with a 410, and so does
// every new watch from an earlier resource version.
func (s *server) lose(count int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range count {
		s.changeLocked()
	}
	s.now++
	s.oldest, s.log = s.now, nil
	s.lost++
	s.wakeLocked()
}

// controller sends requests for changes to a server.
type controller struct{ url string }

func (c controller) ask(ctx context.Context, what string, count, rate int) (state, error) {
	url := fmt.Sprintf("%s/control/%s?count=%d&rate=%d", c.url, what, count, rate)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
	if err != nil {
		return state{}, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return state{}, fmt.Errorf("ask the server to %s: %w", what, err)
	}
	defer func() { _ = response.Body.Close() }()
	var answer state
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return state{}, fmt.Errorf("answer of the server to %s: %w", what, err)
	}
	return answer, nil
}
