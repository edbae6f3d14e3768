package cmdutil

// Alike are things of which the same is said. The zero value is empty.
type Alike struct {
	texts []string            // in the order in which they were first added
	names map[string][]string // by text
}

// Add adds the name of a thing and what is said of it.
func (a *Alike) Add(text, name string) {
	if a.names == nil {
		a.names = map[string][]string{}
	}
	if a.names[text] == nil {
		a.texts = append(a.texts, text)
	}
	a.names[text] = append(a.names[text], name)
}

// Note prints a line for each text, with the names of the things.
func (a *Alike) Note(e Env) {
	for _, text := range a.texts {
		names := a.names[text]
		who := names[0]
		if len(names) > 1 {
			who = Some(names) + ", each"
		}
		e.Note("%s: %s", who, text)
	}
}
