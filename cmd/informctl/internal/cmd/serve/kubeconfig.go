package serve

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/serving"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/relay"
)

// NewKubeconfigCommand returns the command.
func NewKubeconfigCommand(e cmdutil.Env) *cobra.Command {
	var file source.FileFlags
	cmd := &cobra.Command{
		Use:   "kubeconfig",
		Short: "Print the path of the kubeconfig of what serves a file",
		Long: cmdutil.Describe(`Print the path of the kubeconfig of what serves a file.

That is informctl run --serve, or else informctl serve. If neither answers within three
seconds it is an error. A path is printed then, too: kubectl would take none for that of
the cluster. Where it is exported, other commands of informctl go on with the same file.`),
		Example: `  informctl kubeconfig --db informers.db
  export KUBECONFIG="$(informctl kubeconfig)"`,
		Args: cmdutil.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, answers := await(cmd.Context(), serving.RunPath(file.Path), serving.FilePath(file.Path))
			path, err := filepath.Abs(path) // it may be exported, and used elsewhere
			if err != nil {
				return err
			}
			err = e.Output(func(w io.Writer) error {
				_, err := fmt.Fprintln(w, path)
				return err
			})
			if strings.ContainsRune(path, os.PathListSeparator) {
				e.Note("the path has a %q, at which $KUBECONFIG is split; give it to kubectl with --kubeconfig", os.PathListSeparator)
			}
			if err == nil && !answers {
				err = fmt.Errorf("nothing serves %s; informctl run --serve does while it follows a cluster, and informctl serve does without one", file.Path)
			}
			return err
		},
	}
	file.AddPath(e, cmd)
	return cmd
}

const (
	awaitTime  = 3 * time.Second
	awaitEvery = 50 * time.Millisecond
)

// await waits until something answers at one of the kubeconfigs: a process that was just
// started may need a moment. If nothing does, the path that it returns is not one that
// somebody else may have put there.
func await(ctx context.Context, paths ...string) (path string, answers bool) {
	ctx, cancel := context.WithTimeout(ctx, awaitTime)
	defer cancel()
	ticker := time.NewTicker(awaitEvery)
	defer ticker.Stop()
	for {
		for _, path := range paths {
			if relay.Answers(ctx, path) {
				return path, true
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			if path = paths[0]; !relay.MayUse(path) {
				path += ".none"
			}
			return path, false
		}
	}
}
