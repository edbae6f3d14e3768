package cmdutil

import kversion "k8s.io/apimachinery/pkg/util/version"

// FieldsLeftOut is what is said of a server that is newer than the Go types of this
// program: decoding an object with a Go type drops the fields that the type does not
// have.
const FieldsLeftOut = "fields that they do not know are left out"

// TypesMinor is the minor version of Kubernetes that the Go types are of, 1.37: that of
// k8s.io/api in go.mod.
const TypesMinor = 37

// IsNewer reports whether a server of that version may send fields that the Go types do
// not have.
func IsNewer(server string) bool {
	v, err := kversion.ParseGeneric(server)
	return err == nil && (v.Major() > 1 || v.Major() == 1 && v.Minor() > TypesMinor)
}

// NoteNewer says of how many objects fields may be left out. server is the version of the
// server that the objects are from, "" if it is unknown.
func (e Env) NoteNewer(server string, objects int) {
	if objects > 0 && IsNewer(server) {
		e.Note("the server (%s) is newer than the types of this program (1.%d): %s, of %d objects", server, TypesMinor, FieldsLeftOut, objects)
	}
}
