package durable

import (
	"time"
)

// lasting is an error that lasts. One goroutine at a time uses it.
type lasting struct {
	due   time.Time // of the next message
	pause time.Duration
}

// isDue reports whether the error is to be logged: at once, and then after twice the time
// each time.
func (l *lasting) isDue(now time.Time) bool {
	if l.pause > 0 && now.Before(l.due) {
		return false
	}
	l.pause = min(max(2*l.pause, firstRepeat), lastRepeat)
	l.due = now.Add(l.pause)
	return true
}

// end reports whether the error was logged.
func (l *lasting) end() bool {
	was := l.pause > 0
	*l = lasting{}
	return was
}
