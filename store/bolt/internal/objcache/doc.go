// Package objcache keeps decoded objects of a scope: those that fit into a budget, which
// scopes may share, or all of them. Beside them it has weak pointers to the objects that
// readers hold, so that readers decode an object once.
//
// A reader that has decoded an object offers it together with a ticket, which it was
// given before it read. A change of the object, or of one of some others, makes the
// ticket void. So an object that was replaced meanwhile is not kept. The cache may be
// newer than what a reader has read: a hash of the content says whether the object is the
// same.
package objcache
