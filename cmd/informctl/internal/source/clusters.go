package source

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/store"
)

// AddCluster adds the flag that chooses a cluster of a file. kubectl's --cluster is one
// of the kubeconfig.
func (f *FileFlags) AddCluster(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.Cluster, "of-cluster", "", "Only what is of this cluster, of a file that holds several: its ID, as info prints it, or how that begins.")
	cmdutil.RefuseEmpty(cmd.Flags(), "of-cluster", "it names no cluster")
}

// ClusterOf returns the name of the cluster of a scope.
func ClusterOf(info store.Info) string { return cmp.Or(info.Scope.Cluster, cmdutil.NoValue) }

// Clusters returns the names of the clusters of scopes, sorted.
func Clusters(infos []store.Info) (names []string) {
	for _, info := range infos {
		names = append(names, ClusterOf(info))
	}
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

// InfosOf returns the descriptions of views.
func InfosOf(views []*View) (infos []store.Info) {
	for _, v := range views {
		infos = append(infos, v.Info)
	}
	return infos
}

// NoteClusters says which clusters scopes are of, if these are several.
func NoteClusters(e cmdutil.Env, path string, infos []store.Info) {
	if names := Clusters(infos); len(names) > 1 {
		e.Note("%s holds %d clusters, %s; --of-cluster names one", path, len(names), strings.Join(names, " and "))
	}
}

// OneCluster returns an error if scopes are of several clusters.
func OneCluster(path string, infos []store.Info) error {
	names := Clusters(infos)
	if len(names) < 2 {
		return nil
	}
	return fmt.Errorf("%s holds %d clusters, %s; --of-cluster has to name one", path, len(names), strings.Join(names, " and "))
}

// OfServer returns those of several scopes that a server may have, and says of which
// clusters the others are. It returns all if it would be none.
func OfServer[T any](e cmdutil.Env, host, identity string, all []T, infoOf func(T) store.Info) []T {
	var others []store.Info
	own := slices.DeleteFunc(slices.Clone(all), func(v T) bool {
		info := infoOf(v)
		if info.Scope.Cluster == "" || info.Scope.Cluster == identity {
			return false
		}
		others = append(others, info)
		return true
	})
	if len(others) == 0 || len(own) == 0 {
		return all
	}
	e.Note("left out, since the server %s is not theirs: %s", host, strings.Join(Clusters(others), " and "))
	return own
}

// FindCluster returns the one cluster of scopes that a user has named by its ID, or by
// how that begins.
func FindCluster(path string, infos []store.Info, named string) (string, error) {
	names := Clusters(infos)
	var found []string
	for _, name := range names {
		_, uid, _ := strings.Cut(name, "/")
		if name == named {
			return name, nil
		}
		if strings.HasPrefix(name, named) || strings.HasPrefix(uid, named) {
			found = append(found, name)
		}
	}
	switch len(found) {
	case 0:
		return "", fmt.Errorf("%s holds no cluster %q; it holds %s", path, named, cmp.Or(strings.Join(names, " and "), "nothing"))
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("%q are %d clusters, %s", named, len(found), strings.Join(found, " and "))
}

// OfCluster leaves the scopes of one cluster in the database; "" leaves all.
func (d *Database) OfCluster(named string) (err error) {
	if named == "" {
		return nil
	}
	if d.cluster, err = FindCluster(d.Path, d.Scopes, named); err == nil {
		d.leaveCluster()
	}
	return err
}

func (d *Database) leaveCluster() {
	if d.cluster != "" {
		d.Scopes = slices.DeleteFunc(slices.Clone(d.Scopes), func(info store.Info) bool { return ClusterOf(info) != d.cluster })
	}
}
