package top

import (
	"context"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/informctl/informctl/informer"
)

// NewModel returns a model after a first answer.
func NewModel(ctx context.Context, o Options, at time.Time, statuses ...informer.Status) tea.Model {
	m := newModel(ctx, o)
	m.answered(answer{at: at, statuses: statuses})
	return m
}

// Answer returns the message for an answer of the process.
func Answer(at time.Time, statuses ...informer.Status) tea.Msg {
	return answer{at: at, statuses: statuses}
}

// NoAnswer returns the message for a query that failed.
func NoAnswer(at time.Time, err error) tea.Msg { return answer{at: at, err: err} }
