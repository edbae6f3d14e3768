// Package seal encrypts the scopes of a database, and holds the keys for that.
//
// A [Keyring] contains the keys of one file. One value in the file contains all of them,
// wrapped with the user's key. A [Seal] encrypts the records and headers of one scope.
package seal
