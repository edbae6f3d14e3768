package source

import (
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

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
		names, _ := cmdutil.Listed(name, slices.Sorted(maps.Keys(raw.Contexts)))
		return "", fmt.Errorf("context %q does not exist; the kubeconfig has %s", name, names)
	} else if db := serving.FileOf(raw.Contexts[name].LocationOfOrigin); db != "" {
		f.isServed = true
		return db, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", nil //nolint:nilerr // a process without a home has no cache
	}
	// $KUBECONFIG is split at a separator, and may have the path of what serves the file.
	separator := string(os.PathListSeparator)
	base := strings.ReplaceAll(url.PathEscape(name), separator, url.QueryEscape(separator))
	return filepath.Join(dir, "informctl", base+".db"), nil
}

// Served returns the file whose process the context leads to, as long as no flag names
// another server or cluster; "" if it leads to a cluster.
func Served(kube *genericclioptions.ConfigFlags) string {
	for _, other := range []*string{kube.APIServer, kube.ClusterName} {
		if ptr.Deref(other, "") != "" {
			return ""
		}
	}
	f := FileFlags{Kube: kube}
	if path, err := f.ofContext(); err == nil && f.isServed {
		return path
	}
	return ""
}

// RefuseServed returns an error if the context leads to a process that serves the file at
// path, so that a command would take the file for its server. The text of would says what
// it would do.
func RefuseServed(kube *genericclioptions.ConfigFlags, path, would string) error {
	served := Served(kube)
	if served == "" || !isSame(served, path) && filepath.Clean(served) != filepath.Clean(path) {
		return nil
	}
	return fmt.Errorf("the kubeconfig is the one that %s is served with, and %s; name that of the cluster with --kubeconfig", path, would)
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
