// Package heal knows how far the store of an informer has come, and has what is missing
// listed again.
//
// A [State] has one owner for each of these: the phase of the informer, the resource
// version that is reached, what keeps the stored one back, the list that runs, and the
// lists that are due. Package ingest tells it what has become of changes; those that read
// ask it, and wait for it.
//
// It applies and lists nothing: a list is requested by a function.
package heal
