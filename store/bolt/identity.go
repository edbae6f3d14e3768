package bolt

import (
	"crypto/sha256"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// bucketIdentities, in bucketMeta, contains the last verified identities of clusters. The
// keys are hashes of how a cluster is addressed.
var bucketIdentities = []byte("identities")

// identity is one entry of bucketIdentities.
type identity struct {
	Asked   string `msgpack:"asked"`
	Cluster string `msgpack:"cluster"`
}

var _ store.Identities = (*DB)(nil)

// Identity implements store.Identities. It ignores a damaged entry.
func (d *DB) Identity(asked string) (cluster string, err error) {
	var found identity
	err = d.view("identities", func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucketMeta).Bucket(bucketIdentities)
		if b == nil {
			return nil
		}
		if err := record.Unmarshal(b.Get(identityKey(asked)), &found); err != nil || found.Asked != asked {
			found = identity{}
		}
		return nil
	})
	return found.Cluster, err
}

// SetIdentity implements store.Identities. It waits until the identity is written.
func (d *DB) SetIdentity(asked, cluster string) error {
	if known, err := d.Identity(asked); err == nil && known == cluster {
		return nil
	}
	value, err := record.Marshal(identity{Asked: asked, Cluster: cluster})
	if err != nil {
		return err
	}
	return d.update("identities", func(tx *bbolt.Tx) error {
		b, err := tx.Bucket(bucketMeta).CreateBucketIfNotExists(bucketIdentities)
		if err != nil {
			return err
		}
		return b.Put(identityKey(asked), value)
	})
}

func identityKey(asked string) []byte {
	sum := sha256.Sum256([]byte(asked))
	return sum[:]
}
