package cmdutil

import (
	"bufio"
	"fmt"
	"strings"
)

// CanAsk reports whether there is somebody to ask: at a terminal.
func (e Env) CanAsk() bool { return isTerminal(e.Streams.In) && isTerminal(e.Streams.ErrOut) }

// Confirm asks on the terminal, and reports whether the answer is yes.
func (e Env) Confirm(question string) bool {
	_, _ = fmt.Fprintf(e.Streams.ErrOut, "%s [y/N] ", question)
	answer, err := bufio.NewReader(e.Streams.In).ReadString('\n')
	if err != nil {
		_, _ = fmt.Fprintln(e.Streams.ErrOut) // the line has no end
		return false
	}
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}
