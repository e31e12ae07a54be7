package settings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const valid = `{"datastore": {"file": "state.db", "socket": "store.sock", "maxBytes": 536870912},
	"apiServer": ["--secure-port=6443"], "controllers": []}`

func TestRead(t *testing.T) {
	for text, problem := range map[string]string{
		valid: "",
		strings.Replace(valid, `"state.db"`, `""`, 1):                "datastore.file",
		strings.Replace(valid, "536870912", "4096", 1):               "datastore.maxBytes",
		strings.Replace(valid, `"--secure-port=6443"`, "", 1):        "apiServer must have flags",
		strings.Replace(valid, "--secure-port", "--etcd-servers", 1): "the datastore is given by itself",
		strings.Replace(valid, `"controllers"`, `"controlers"`, 1):   "unknown field",
		"{": "unexpected EOF",
	} {
		file := filepath.Join(t.TempDir(), "settings.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		found, err := Read(file)
		if problem == "" {
			if err != nil || found.Datastore.MaxBytes != 512<<20 {
				t.Errorf("%s: %v, %v", text, found, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%s: %v, not %q", text, err, problem)
		}
	}
}
