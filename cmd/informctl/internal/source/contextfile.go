package source

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/serving"
)

const (
	// hereFile is the file of a working directory.
	hereFile = "informers.db"
	// inCluster stands for the context of a pod, whose configuration has none.
	inCluster = "in-cluster"
)

// addContext adds the flags that name the context whose file is meant.
func (f *FileFlags) addContext(cmd *cobra.Command) {
	f.Kube = &genericclioptions.ConfigFlags{KubeConfig: new(string), Context: new(string)}
	cmd.Flags().StringVar(f.Kube.Context, "context", "", "The context whose file is meant where --db names none; the current one of the kubeconfig by default.")
	cmd.Flags().StringVar(f.Kube.KubeConfig, "kubeconfig", "", "The kubeconfig that has the context.")
	cmdutil.CompleteContext(cmd, f.Kube)
}

// Complete finds the file if neither --db nor $INFORMCTL_DB names it: that of the context
// that --context names, that of the working directory, if there is one, else that of the
// current context. It is that of the working directory, too, if there is no context or no
// directory for caches.
func (f *FileFlags) Complete(e cmdutil.Env) error {
	if f.Path != "" {
		return nil
	}
	path, err := f.ofContext()
	switch {
	case *f.Kube.Context == "" && isThere(hereFile):
		f.Path = hereFile
		if path != "" && isThere(path) && !isSame(path, hereFile) {
			e.Note("using ./%s, not the context's %s; --db names another", hereFile, path)
		}
	case err != nil:
		return fmt.Errorf("kubeconfig: %w", err)
	case path == "":
		if files := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); files != "" {
			e.Note("kubeconfig: %s names no context, so ./%s is meant; --db names another", files, hereFile)
		}
		f.Path = hereFile
	default:
		f.Path, f.byContext = path, true
	}
	return nil
}

func isSame(path, other string) bool {
	a, errA := os.Lstat(path)
	b, errB := os.Lstat(other)
	return errA == nil && errB == nil && os.SameFile(a, b)
}

func isThere(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// ofContext returns the path of the context's file, "" if there is no context or no
// directory for it. A context of a process that serves a file means that one.
func (f *FileFlags) ofContext() (string, error) {
	raw, err := f.Kube.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return "", err
	}
	name := raw.CurrentContext
	if *f.Kube.Context != "" {
		name = *f.Kube.Context
	}
	if name == "" {
		if _, err := rest.InClusterConfig(); err != nil {
			return "", nil //nolint:nilerr // this is no pod
		}
		name = inCluster
	} else if raw.Contexts[name] == nil {
		return "", fmt.Errorf("context %q does not exist", name)
	} else if db := serving.FileOf(raw.Contexts[name].LocationOfOrigin); db != "" {
		f.isServed = true
		return db, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", nil //nolint:nilerr // a process without a home has no cache
	}
	return filepath.Join(dir, "informctl", url.PathEscape(name)+".db"), nil
}

// IsOfItself reports whether the context is one of a process that serves the file itself,
// and no flag names another server or cluster.
func (f *FileFlags) IsOfItself() bool {
	for _, other := range []*string{f.Kube.APIServer, f.Kube.ClusterName} {
		if ptr.Deref(other, "") != "" {
			return false
		}
	}
	served := FileFlags{Kube: f.Kube}
	path, err := served.ofContext()
	return err == nil && served.isServed && (isSame(path, f.Path) || filepath.Clean(path) == filepath.Clean(f.Path))
}

// MakeDir makes the directory of a context's file.
func (f *FileFlags) MakeDir() error {
	if !f.byContext {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(f.Path), 0o700); err != nil {
		return InDirectory(f.Path, err)
	}
	return nil
}
