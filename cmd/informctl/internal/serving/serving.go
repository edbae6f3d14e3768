// Package serving is what the commands that serve objects as a Kubernetes API share.
package serving

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/relay"
	"github.com/informctl/informctl/store"
)

// Serve serves a source until ctx ends. begun is called when clients can come.
func Serve(ctx context.Context, from relay.Source, o relay.Options, kubeconfig string, port int, begun func(*relay.Local)) error {
	l, err := relay.Listen(ctx, port, kubeconfig)
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	o.Token = l.Token
	server, err := relay.New(from, o)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	begun(l)
	return l.Serve(ctx, server)
}

// Note returns what a user has to know of the objects of a scope, "" for nothing.
func Note(scope store.Scope, transform, serverVersion string) string {
	switch {
	case transform != "":
		return "a transform has changed what the server has sent"
	case scope.Form == store.Typed && cmdutil.IsNewer(serverVersion):
		return "the server is newer than informctl, which may leave out fields that it does not know"
	}
	return ""
}

// StaleAfter is how long a server may not have been heard before users are warned: it
// sends events or bookmarks about each minute.
const StaleAfter = 150 * time.Second

// WithNote returns a note with another one behind it. Either may be "".
func WithNote(note, other string) string {
	if note == "" || other == "" {
		return note + other
	}
	return note + "; " + other
}

// RunPath returns the path of the kubeconfig of a process that keeps a file.
func RunPath(db string) string { return db + ".kubeconfig" }

// FilePath returns that of one that serves a file as it is, or was.
func FilePath(db string) string { return db + ".serve.kubeconfig" }

// FileOf returns the file that is served by a process which wrote a kubeconfig, "" if
// none did.
func FileOf(kubeconfig string) string {
	for _, ending := range []string{FilePath(""), RunPath("")} {
		if db, is := strings.CutSuffix(kubeconfig, ending); is && relay.MayUse(kubeconfig) {
			return db
		}
	}
	return ""
}
