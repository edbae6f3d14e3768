package top

import (
	"context"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/informctl/informctl/informer"
)

// NewModel is what is shown after a first answer.
func NewModel(ctx context.Context, o Options, at time.Time, statuses ...informer.Status) tea.Model {
	m := newModel(ctx, o)
	m.answered(answer{at: at, statuses: statuses})
	return m
}

// Answer is the message that the process has answered.
func Answer(at time.Time, statuses ...informer.Status) tea.Msg {
	return answer{at: at, statuses: statuses}
}

// NoAnswer is the message that it has not.
func NoAnswer(at time.Time, err error) tea.Msg { return answer{at: at, err: err} }
