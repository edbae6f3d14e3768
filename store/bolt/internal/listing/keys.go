package listing

// Keys are the keys of a list. The zero value has none. They are not safe for concurrent
// use.
type Keys struct {
	all   map[string]bool // those whose object was added have true
	added int
}

// Add adds the key of an object that was added. It reports whether the key was there.
func (k *Keys) Add(key string) (again bool) {
	isAdded, again := k.all[key]
	if !isAdded {
		k.added++
	}
	k.set(key, true)
	return again
}

// Keep adds a key whose object was not added, unless the key is there.
func (k *Keys) Keep(key string) {
	if !k.all[key] {
		k.set(key, false)
	}
}

// Remove removes a key.
func (k *Keys) Remove(key string) {
	if k.all[key] {
		k.added--
	}
	delete(k.all, key)
}

func (k *Keys) set(key string, isAdded bool) {
	if k.all == nil {
		k.all = map[string]bool{}
	}
	k.all[key] = isAdded
}

// Has reports whether a key is listed, whether or not its object was added.
func (k *Keys) Has(key string) bool {
	_, is := k.all[key]
	return is
}

// IsAdded reports whether the object of a key was added.
func (k *Keys) IsAdded(key string) bool { return k.all[key] }

// Added returns how many objects were added.
func (k *Keys) Added() int { return k.added }
