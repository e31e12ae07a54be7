package settings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const valid = `{"datastore": {"file": "state.db", "maxBytes": 536870912},
	"apiServer": ["--secure-port=6443"], "controllers": []}`

func with(admission string) string {
	return strings.Replace(valid, `"controllers"`, `"admission": `+admission+`, "controllers"`, 1)
}

func TestRead(t *testing.T) {
	for text, problem := range map[string]string{
		valid: "",
		strings.Replace(valid, `"state.db"`, `""`, 1):                                                                 "datastore.file",
		strings.Replace(valid, "536870912", "4096", 1):                                                                "datastore.maxBytes",
		strings.Replace(valid, `"--secure-port=6443"`, "", 1):                                                         "apiServer must have flags",
		strings.Replace(valid, "--secure-port", "--etcd-servers", 1):                                                  "the datastore is given by itself",
		strings.Replace(valid, `"controllers"`, `"controlers"`, 1):                                                    "unknown field",
		with(`{"socket": "s", "rules": [{"group": "", "resource": "services", "operations": ["CREATE", "UPDATE"]}]}`): "",

		with(`{"socket": "", "rules": []}`):                                                   "admission.socket",
		with(`{"socket": "s", "rules": []}`):                                                  "admission.rules must have",
		with(`{"socket": "s", "rules": [{"resource": "pods/status"}]}`):                       "rules[0].resource",
		with(`{"socket": "s", "rules": [{"resource": "*"}]}`):                                 "rules[0].resource",
		with(`{"socket": "s", "rules": [{"resource": "pods"}]}`):                              "rules[0].operations must have",
		with(`{"socket": "s", "rules": [{"resource": "pods", "operations": ["DELETE"]}]}`):    `not "DELETE"`,
		with(`{"socket": "s", "rules": [{"resources": ["pods"], "operations": ["CREATE"]}]}`): "unknown field",

		strings.Replace(valid, `"controllers"`, `"activity": {"socket": "s", "ignoredUsers": ["o"]}, "controllers"`, 1): "",
		strings.Replace(valid, `"controllers"`, `"activity": {"ignoredUsers": []}, "controllers"`, 1):                   "activity.socket",

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
