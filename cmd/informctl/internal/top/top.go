// Package top is a terminal program that shows what a process' informers are doing,
// again and again: a row for each scope, which can be sorted, filtered and looked
// into.
//
// # Concurrency
//
// Bubble Tea calls the model from one goroutine, and asks the process in another;
// there is one question at a time. All end with Run, but for one of Bubble Tea's after
// a signal or a panic, which reads keys until the process ends.
package top

import (
	"context"
	"errors"
	"os"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/informctl/informctl/informer"
)

// Options are those of Run; none may be zero.
type Options struct {
	File     string                                           // the database, for the title
	Interval time.Duration                                    // between an answer and the next question
	Ask      func(context.Context) ([]informer.Status, error) // the process
	Now      func() time.Time
	In, Out  *os.File // a terminal
}

// Run shows what the process answers until the user quits, a signal comes or ctx
// ends, none of which is an error. It blocks, and leaves the terminal as it was, after
// a panic too. A process that does not answer at all is an error at once; one that
// ceases to answer is asked again and again.
func Run(ctx context.Context, o Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends a question
	statuses, err := o.Ask(ctx)
	if err != nil {
		return err
	}
	m := newModel(ctx, o)
	m.answered(answer{at: o.Now(), statuses: statuses})
	program := tea.NewProgram(m, tea.WithInput(o.In), tea.WithOutput(o.Out))
	defer context.AfterFunc(ctx, program.Quit)() // by its own context it would not wait for its reader
	_, err = program.Run()
	switch {
	case errors.Is(err, tea.ErrProgramPanic):
		return errors.New("top has failed; what it printed says where")
	case errors.Is(err, tea.ErrInterrupted):
		return nil
	}
	return err
}
