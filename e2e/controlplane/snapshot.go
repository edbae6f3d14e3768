package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
)

// Snapshot writes the current content of etcd to a new file at path. The control plane
// continues to run.
func (c *ControlPlane) Snapshot(ctx context.Context, path string) (err error) {
	client, err := c.etcdClient()
	if err != nil {
		return err
	}
	defer client.Close()
	r, err := client.Snapshot(ctx)
	if err != nil {
		return fmt.Errorf("take a snapshot of etcd: %w", err)
	}
	defer r.Close()
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("create a snapshot: %w", err)
	}
	if _, err := io.Copy(f, r); err != nil {
		f.Close()
		return fmt.Errorf("write a snapshot of etcd: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("write a snapshot of etcd: %w", err)
	}
	return nil
}

// Restore stops both programs, replaces the data of etcd with the snapshot at path and
// starts the programs again on the same ports. This rewinds history: resource versions
// continue from that of the snapshot, so later ones are used a second time.
func (c *ControlPlane) Restore(ctx context.Context, path string) error {
	if err := c.StopAPIServer(ctx); err != nil {
		return err
	}
	c.stopEtcd(ctx)
	if err := os.RemoveAll(c.dataDir()); err != nil {
		return fmt.Errorf("remove etcd's data: %w", err)
	}
	err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath:        path,
		Name:                memberName,
		OutputDataDir:       c.dataDir(),
		PeerURLs:            []string{c.peerURL()},
		InitialCluster:      c.initialCluster(),
		InitialClusterToken: "etcd-cluster",
	})
	if err != nil {
		return fmt.Errorf("restore a snapshot of etcd: %w", err)
	}
	return c.startBoth(ctx)
}

// Compact makes etcd forget all revisions before the current one. The watch cache of the
// API server still holds recent ones: requests for those get 410 only after
// RestartAPIServer.
func (c *ControlPlane) Compact(ctx context.Context) error {
	client, err := c.etcdClient()
	if err != nil {
		return err
	}
	defer client.Close()
	// The answer to any read contains the current revision.
	resp, err := client.Get(ctx, "compact_rev_key", clientv3.WithCountOnly())
	if err != nil {
		return fmt.Errorf("read etcd's revision: %w", err)
	}
	_, err = client.Compact(ctx, resp.Header.Revision, clientv3.WithCompactPhysical())
	// ErrCompacted means that nothing was written since the last compaction.
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return fmt.Errorf("compact etcd: %w", err)
	}
	return nil
}

func (c *ControlPlane) dataDir() string { return c.path("etcd") }

func (c *ControlPlane) etcdClient() (*clientv3.Client, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{c.etcdURL()}, Logger: zap.NewNop()})
	if err != nil {
		return nil, fmt.Errorf("connect to etcd: %w", err)
	}
	return client, nil
}
