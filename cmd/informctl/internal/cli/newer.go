package cli

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	kversion "k8s.io/apimachinery/pkg/util/version"

	"github.com/informctl/informctl/internal/wire"
	"github.com/informctl/informctl/store"
)

// fieldsLeftOut is what is said of a server that is newer than the Go types of this
// program: decoding an object with a Go type drops the fields that the type does not
// have.
const fieldsLeftOut = "fields that they do not know are left out"

// typesMinor is the minor version of Kubernetes that the Go types are of, 1.37: that of
// k8s.io/api in go.mod.
const typesMinor = 37

// isNewer reports whether a server of that version may send fields that the Go types do
// not have.
func isNewer(server string) bool {
	v, err := kversion.ParseGeneric(server)
	return err == nil && (v.Major() > 1 || v.Major() == 1 && v.Minor() > typesMinor)
}

// noteNewer says of how many objects fields may be left out. server is the version of the
// server that the objects are from, "" if it is unknown.
func (e env) noteNewer(server string, objects int) {
	if objects > 0 && isNewer(server) {
		e.note("the server (%s) is newer than the types of this program (1.%d): %s, of %d objects", server, typesMinor, fieldsLeftOut, objects)
	}
}

// typed returns the number of items that are decoded with a Go type.
func typed(items []item) (n int) {
	for _, i := range items {
		if i.view.info.Scope.Form == store.Typed {
			n++
		}
	}
	return n
}

// serverVersion asks a server for its version, "" if it does not say.
func (s *server) serverVersion() string {
	d, err := s.discovery()
	if err != nil {
		return ""
	}
	info, err := d.ServerVersion()
	if err != nil {
		return ""
	}
	return info.GitVersion
}

// serverVersion returns the version of the server that run has last followed, "" if it is
// unknown.
func (db *database) serverVersion(ctx context.Context) string {
	if db.file == nil {
		return db.server
	}
	values, err := db.file.Ledger(ctx, wire.ServerLedger)
	if err != nil {
		return "" // what is read of the file reports the damage
	}
	return string(values[wire.ServerVersion])
}

// noteServer records the version of the server in the file, and says once, when all is
// listed, that it is newer than the types.
func (fs *followers) noteServer(ctx context.Context, logger logr.Logger) {
	server := fs.cluster.version
	values, err := fs.db.Ledger(ctx, wire.ServerLedger)
	if err == nil && string(values[wire.ServerVersion]) != server {
		err = fs.db.SetLedger(ctx, wire.ServerLedger, map[string][]byte{wire.ServerVersion: []byte(server)})
	}
	if err != nil && ctx.Err() == nil {
		logger.Info("The version of the server was not recorded", "because", err.Error())
	}
	if !isNewer(server) {
		return
	}
	objects := 0
	for _, f := range fs.list() {
		select {
		case <-f.informer.HasSyncedChecker().Done():
		case <-ctx.Done():
		}
		if f.scope.Form == store.Typed {
			objects += f.informer.Status().Objects
		}
	}
	logger.Info("The server is newer than the types of this program, fields that they do not know are left out", "server", server, "types", fmt.Sprintf("1.%d", typesMinor), "objects", objects)
}
