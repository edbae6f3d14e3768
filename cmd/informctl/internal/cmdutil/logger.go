package cmdutil

import (
	"io"
	"log/slog"

	"github.com/go-logr/logr"
)

// NewLogger returns a logger that writes one line per message.
func NewLogger(w io.Writer, format string) logr.Logger {
	options := &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindDuration {
			// JSON would contain nanoseconds.
			a.Value = slog.StringValue(a.Value.Duration().String())
		}
		return a
	}}
	if format == "json" {
		return logr.FromSlogHandler(slog.NewJSONHandler(w, options))
	}
	return logr.FromSlogHandler(slog.NewTextHandler(w, options))
}
