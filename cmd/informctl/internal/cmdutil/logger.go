package cmdutil

import (
	"context"
	"io"
	"log/slog"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
)

// LogFlags say how a command logs.
type LogFlags struct{ format string }

// Add adds the flags.
func (f *LogFlags) Add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.format, "log-format", "text", "How to log to standard error, one of: text, json.")
	CompleteWords(cmd, "log-format", "text", "json")
}

// Check refuses an unknown format.
func (f *LogFlags) Check(cmd *cobra.Command) error {
	if f.format != "text" && f.format != "json" {
		return Usagef(cmd, "unknown log format %q; there are text, json", f.format)
	}
	return nil
}

// Logger returns a logger that writes one line per message.
func (f *LogFlags) Logger(w io.Writer) logr.Logger {
	options := &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindDuration {
			// JSON would contain nanoseconds.
			a.Value = slog.StringValue(a.Value.Duration().String())
		}
		return a
	}}
	if f.format == "json" {
		return logr.FromSlogHandler(slog.NewJSONHandler(w, options))
	}
	return logr.FromSlogHandler(slog.NewTextHandler(w, options))
}

// Warnings returns a logger whose messages are warnings, for which logr has no level.
func Warnings(logger logr.Logger) logr.Logger {
	return logr.FromSlogHandler(warner{logr.ToSlogHandler(logger)})
}

// warner is a handler of warnings.
type warner struct{ slog.Handler }

// Handle implements slog.Handler.
func (w warner) Handle(ctx context.Context, r slog.Record) error {
	r.Level = slog.LevelWarn
	return w.Handler.Handle(ctx, r)
}
