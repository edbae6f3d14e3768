package codec_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/informctl/informctl/codec"
)

func keyText(b byte) string { return strings.Repeat(fmt.Sprintf("%02x", b), 32) + "\n" }

func key(b byte) (k codec.Key) {
	copy(k[:], bytes.Repeat([]byte{b}, len(k)))
	return k
}

func writeKeys(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func wantKeys(t *testing.T, p codec.KeyProvider, want ...codec.Key) {
	t.Helper()
	got, err := p.Keys(t.Context())
	if err != nil || len(got) != len(want) {
		t.Fatalf("%d keys, want %d (%v)", len(got), len(want), err)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("key %d is another one", i)
		}
	}
}

// TestKeyFile checks that each call reads the current content of the file.
func TestKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	writeKeys(t, path, keyText(1), 0o600)
	p := codec.KeyFile(path)
	wantKeys(t, p, key(1))
	writeKeys(t, path, "\n"+keyText(0xAB)+"  "+strings.ToUpper(keyText(0xCD))+"\r\n", 0o440)
	wantKeys(t, p, key(0xAB), key(0xCD))
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Keys(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is gone: %v", err)
	}
}

// TestKeyFileRefuses checks that each invalid file is an error that names the problem and
// shows none of the content.
func TestKeyFileRefuses(t *testing.T) {
	secret := hex.EncodeToString([]byte("not to be printed, whatever"))
	for name, test := range map[string]struct {
		text string
		mode os.FileMode
		want string
	}{
		"readable by all":   {keyText(1), 0o644, "chmod 0600"},
		"writable by group": {keyText(1), 0o620, "chmod 0600"},
		"empty":             {"\n\n", 0o600, "empty; want 64 hexadecimal digits"},
		"too short":         {keyText(1) + secret + "\n", 0o600, "line 2 is 54 bytes long; want 64"},
		"raw":               {strings.Repeat("\x01", 32), 0o600, "line 1 is 32 bytes long"},
		"not hexadecimal":   {strings.Repeat("g", 64), 0o600, "line 1 is not hexadecimal"},
		"zeros":             {keyText(0), 0o600, "key of zeros"},
		"too long":          {strings.Repeat(keyText(1), 2000), 0o600, "longer than"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "key")
			writeKeys(t, path, test.text, test.mode)
			_, err := codec.KeyFile(path).Keys(t.Context())
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("error %v, want %q and the path", err, test.want)
			}
			if line := strings.TrimSpace(test.text); line != "" && strings.Contains(err.Error(), line[:min(20, len(line))]) {
				t.Errorf("the error has some of the file: %v", err)
			}
		})
	}
	t.Run("pipe", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "key")
		if err := unix.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := codec.KeyFile(path).Keys(t.Context()); err == nil || !strings.Contains(err.Error(), "no regular file") {
			t.Errorf("a pipe: %v", err)
		}
	})
}

// TestKeyCommand checks that arguments are passed to the command unchanged, and that its
// standard error is not part of an error.
func TestKeyCommand(t *testing.T) {
	wantKeys(t, codec.KeyCommand("printf", "%s%s", keyText(1), keyText(2)), key(1), key(2))
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"fails":        {[]string{"sh", "-c", "echo hunter2 >&2; exit 3"}, "key command sh: exit status 3"},
		"no shell":     {[]string{"echo " + strings.TrimSpace(keyText(1))}, "executable file not found"},
		"not there":    {[]string{"informctl-no-such-command"}, "executable file not found"},
		"empty":        {[]string{""}, "key command is empty"},
		"prints none":  {[]string{"true"}, "key command true: empty"},
		"prints words": {[]string{"echo", "hunter2"}, "line 1 is 7 bytes long"},
		"prints much":  {[]string{"head", "-c", "200000", "/dev/zero"}, "longer than"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := codec.KeyCommand(test.args[0], test.args[1:]...).Keys(t.Context())
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("error %v, want %q", err, test.want)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error has what the command wrote: %v", err)
			}
		})
	}
}

// TestKeyCommandEnds checks that a command that does not end is killed with its context.
func TestKeyCommandEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := codec.KeyCommand("sleep", "1000").Keys(ctx); err == nil {
		t.Error("a command that does not end gave keys")
	}
}

// TestKeyPrintsNothing checks that no verb prints the key.
func TestKeyPrintsNothing(t *testing.T) {
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d", "%q"} {
		k := key(7)
		for _, v := range []any{k, &k, []codec.Key{k}, struct{ K codec.Key }{k}} {
			if text := fmt.Sprintf(verb, v); strings.Contains(text, "7") && !strings.HasPrefix(text, "0x") && !strings.HasPrefix(text, "c0") {
				t.Errorf("%s of a %T prints %s", verb, v, text)
			}
		}
	}
}

// TestAEAD checks that sealed data can only be opened with the same key and the same
// bound data, and that a changed bit is detected.
func TestAEAD(t *testing.T) {
	plain, bound := []byte("what nobody may read"), []byte("where it stands")
	aead := key(1).AEAD()
	sealed := aead.Seal(nil, nil, plain, bound)
	if again := aead.Seal(nil, nil, plain, bound); bytes.Equal(sealed, again) || bytes.Contains(sealed, plain[:4]) {
		t.Error("sealed twice it is the same, or it is not sealed")
	}
	if got, err := key(1).AEAD().Open(nil, nil, sealed, bound); err != nil || !bytes.Equal(got, plain) {
		t.Errorf("opened: %q, %v", got, err)
	}
	if _, err := key(2).AEAD().Open(nil, nil, sealed, bound); err == nil {
		t.Error("another key opens it")
	}
	if _, err := aead.Open(nil, nil, sealed, []byte("elsewhere")); err == nil {
		t.Error("it opens elsewhere")
	}
	for i := range sealed {
		sealed[i] ^= 0x40
		if _, err := aead.Open(nil, nil, sealed, bound); err == nil {
			t.Errorf("byte %d is changed and it opens", i)
		}
		sealed[i] ^= 0x40
	}
	if _, err := aead.Open(nil, nil, sealed[:11], bound); err == nil {
		t.Error("cut short it opens")
	}
}
