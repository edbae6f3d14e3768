// Package top is a terminal program that continuously shows the state of the informers of
// a process. It shows a row for each scope; rows can be sorted, filtered and opened.
//
// # Concurrency
//
// Bubble Tea calls the model from one goroutine and queries the process in another, with
// one query at a time. All goroutines end with Run, except one of Bubble Tea's after a
// signal or a panic, which reads keys until the process ends.
package top

import (
	"context"
	"errors"
	"os"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/informctl/informctl/informer"
)

// Options are the options of Run. All fields are required.
type Options struct {
	File     string                                           // database, for the title
	Interval time.Duration                                    // between two queries
	Ask      func(context.Context) ([]informer.Status, error) // queries the process
	Now      func() time.Time
	In, Out  *os.File // a terminal
}

// Run shows the status of the process until the user quits or ctx ends; neither is an
// error. The caller ends ctx with signals. Run blocks, and restores the terminal, also
// after a panic. It returns an error at once if the process does not answer the first
// query. If the process stops answering later, Run continues to query it.
func Run(ctx context.Context, o Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends a query
	statuses, err := o.Ask(ctx)
	if err != nil {
		return err
	}
	m := newModel(ctx, o)
	m.answered(answer{at: o.Now(), statuses: statuses})
	// Signals end ctx. A handler of the program's own would wait for ever to hand over
	// one that comes while ctx ends the program.
	program := tea.NewProgram(m, tea.WithInput(o.In), tea.WithOutput(o.Out), tea.WithoutSignalHandler())
	// If the program had ctx as its own context, it would not wait for its reader.
	defer context.AfterFunc(ctx, program.Quit)()
	_, err = program.Run()
	if errors.Is(err, tea.ErrProgramPanic) {
		return errors.New("top has failed; what it printed says where")
	}
	return err
}
