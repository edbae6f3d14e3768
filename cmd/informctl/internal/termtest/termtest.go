// Package termtest provides a terminal for tests: a pseudo terminal with an emulator
// behind it. A program draws on the terminal, and the test reads the screen.
package termtest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/hinshun/vt10x"
	"golang.org/x/term"
)

// patience is how long a test waits for a screen.
const patience = 2 * time.Minute

// Screen is a terminal. Its methods must be called from one goroutine.
type Screen struct {
	TTY *os.File // the terminal of the program

	t      *testing.T
	pty    *os.File
	before *term.State

	// mu protects the emulator and its input. A goroutine feeds the emulator until the
	// terminal is closed.
	mu       sync.Mutex
	emulator vt10x.Terminal
	raw      bytes.Buffer
	drawn    chan struct{} // holds an element if the screen has changed
}

// Open opens a terminal that is closed when the test ends.
func Open(t *testing.T, width, height int) *Screen {
	t.Helper()
	master, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	s := &Screen{TTY: tty, t: t, pty: master, drawn: make(chan struct{}, 1)}
	s.emulator = vt10x.New(vt10x.WithWriter(master), vt10x.WithSize(width, height))
	s.Resize(width, height)
	if s.before, err = term.GetState(int(tty.Fd())); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.feed()
	}()
	t.Cleanup(func() {
		_ = tty.Close()
		_ = master.Close()
		<-ended
	})
	return s
}

// feed passes the output of the program to the emulator until the terminal is closed.
func (s *Screen) feed() {
	piece := make([]byte, 64<<10)
	for {
		n, err := s.pty.Read(piece)
		s.mu.Lock()
		s.raw.Write(piece[:n])
		_, _ = s.emulator.Write(piece[:n])
		s.mu.Unlock()
		select {
		case s.drawn <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// Start starts a program on the terminal, as a shell does.
func (s *Screen) Start(cmd *exec.Cmd) {
	s.t.Helper()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.TTY, s.TTY, s.TTY
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
}

// Resize changes the size and notifies the program.
func (s *Screen) Resize(width, height int) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.emulator.Resize(width, height)
	if err := pty.Setsize(s.pty, &pty.Winsize{Cols: uint16(width), Rows: uint16(height)}); err != nil {
		s.t.Fatal(err)
	}
}

// Type sends keys.
func (s *Screen) Type(keys string) {
	s.t.Helper()
	if _, err := s.pty.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

// Wait waits until the screen satisfies wanted, and returns it.
func (s *Screen) Wait(what string, wanted func(screen string) bool) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	for {
		screen := s.String()
		if wanted(screen) {
			return screen
		}
		select {
		case <-s.drawn:
		case <-ctx.Done():
			s.t.Fatalf("%s is not to be seen on\n%s", what, screen)
		}
	}
}

// WaitFor waits until the screen contains all texts, and returns it.
func (s *Screen) WaitFor(texts ...string) string {
	s.t.Helper()
	return s.Wait(fmt.Sprintf("%q", texts), func(screen string) bool {
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				return false
			}
		}
		return true
	})
}

// String returns the screen without trailing spaces.
func (s *Screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := strings.Split(s.emulator.String(), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

// Raw returns everything that was written so far.
func (s *Screen) Raw() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.raw.String()
}

// CheckRestored fails the test if a program that has ended did not restore the terminal.
func (s *Screen) CheckRestored() {
	s.t.Helper()
	s.Wait("the screen from before", func(string) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.emulator.Mode()&vt10x.ModeAltScreen == 0 && s.emulator.CursorVisible()
	})
	after, err := term.GetState(int(s.TTY.Fd()))
	if err != nil || *after != *s.before {
		s.t.Errorf("the terminal's modes are %+v, want %+v (%v)", after, s.before, err)
	}
}
