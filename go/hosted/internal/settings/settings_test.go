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

const (
	inETCD = `{"etcd": {"socket": "s", "prefix": "/planes/a", "serverName": "n", "ca": "a", "certificate": "c", "key": "k"},
		"maxBytes": 536870912}`
	inSQL = `{"sql": {"driver": "postgres", "socket": ".s.PGSQL.5432", "database": "d", "user": "u", "passwordFile": "p",
		"owner": "o"}}`
)

func in(store, old, new string) string {
	return strings.Replace(valid, `{"file": "state.db", "maxBytes": 536870912}`, strings.Replace(store, old, new, 1), 1)
}

func TestReadDatastores(t *testing.T) {
	for text, problem := range map[string]string{
		in(inETCD, "", ""): "",
		in(inSQL, "", ""):  "",
		in(inSQL, `"postgres", "socket": ".s.PGSQL.5432"`, `"mysql", "socket": "m"`): "",

		in(inETCD, `"etcd"`, `"file": "state.db", "etcd"`): "one of",
		in(inETCD, `"socket": "s"`, `"socket": ""`):        "etcd.socket",
		in(inETCD, `"etcd"`, `"prebuilt": "/p", "etcd"`):   "datastore.prebuilt",
		in(inSQL, `"sql"`, `"prebuilt": "/p", "sql"`):      "datastore.prebuilt",
		in(inETCD, "536870912", "1"):                       "datastore.maxBytes",
		in(inETCD, `"key": "k"`, `"key": ""`):              "etcd.key",
		// Each of them would have the keys of others.
		in(inETCD, "/planes/a", ""):             "etcd.prefix",
		in(inETCD, "/planes/a", "/"):            "etcd.prefix",
		in(inETCD, "/planes/a", "/planes/a/"):   "etcd.prefix",
		in(inETCD, "/planes/a", "/planes/../b"): "etcd.prefix",
		in(inETCD, "/planes/a", "planes/a"):     "etcd.prefix",

		in(inSQL, "postgres", "oracle"):             "sql.driver",
		in(inSQL, ".s.PGSQL.5432", "postgres.sock"): "sql.socket must be called",
		in(inSQL, `"owner": "o"`, `"owner": ""`):    "sql.owner",
		in(inSQL, `"user": "u"`, `"password": "u"`): "unknown field",
	} {
		_, err := read(t, text)
		if problem == "" && err != nil || problem != "" && (err == nil || !strings.Contains(err.Error(), problem)) {
			t.Errorf("%s: %v, not %q", text, err, problem)
		}
	}
}

func TestReadForwarded(t *testing.T) {
	const group = `[{"socket": "s", "group": "things.example.com", "version": "v1", "resources": [{"name": "pods"}]}]`
	for change, problem := range map[string]string{
		"":                           "",
		`"socket": "s"|"socket": ""`: "forwarded[0].socket",
		`things.example.com|apps`:    "forwarded[0].group",
		`things.example.com|a.b/c`:   "forwarded[0].group",
		`"v1"|""`:                    "forwarded[0].version",
		`[{"name": "pods"}]|[]`:      "forwarded[0].resources",
		`"name": "pods"|"name": "pods", "verbs": ["x"]`: "unknown field",
	} {
		old, new, _ := strings.Cut(change, "|")
		text := strings.Replace(valid, `"controllers"`, `"forwarded": `+strings.Replace(group, old, new, 1)+`, "controllers"`, 1)
		_, err := read(t, text)
		if problem == "" && err != nil || problem != "" && (err == nil || !strings.Contains(err.Error(), problem)) {
			t.Errorf("%s: %v, not %q", text, err, problem)
		}
	}
}

func read(t *testing.T, text string) (Settings, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "settings.json")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Read(file)
}

func TestRead(t *testing.T) {
	for text, problem := range map[string]string{
		valid: "",
		strings.Replace(valid, `"state.db"`, `""`, 1):                                                                 "must have one of datastore.file",
		strings.Replace(valid, "536870912", "4096", 1):                                                                "datastore.maxBytes",
		strings.Replace(valid, `"--secure-port=6443"`, "", 1):                                                         "apiServer must have flags",
		strings.Replace(valid, "--secure-port", "--etcd-servers", 1):                                                  "the datastore is given by itself",
		strings.Replace(valid, `"controllers"`, `"controlers"`, 1):                                                    "unknown field",
		with(`{"socket": "s", "rules": [{"group": "", "resource": "services", "operations": ["CREATE", "UPDATE"]}]}`): "",

		with(`{"socket": "", "rules": []}`):  "admission.socket",
		with(`{"socket": "s", "rules": []}`): "admission must have",
		with(`{"socket": "s", "rules": [], "advice": [{"resource": "pods", "operations": ["CREATE"]}]}`): "",
		with(`{"socket": "s", "rules": [], "advice": [{"resource": "pods/status"}]}`):                    "advice[0].resource",
		with(`{"socket": "s", "rules": [{"resource": "pods/status"}]}`):                                  "rules[0].resource",
		with(`{"socket": "s", "rules": [{"resource": "*"}]}`):                                            "rules[0].resource",
		with(`{"socket": "s", "rules": [{"resource": "pods"}]}`):                                         "rules[0].operations must have",
		with(`{"socket": "s", "rules": [{"resource": "pods", "operations": ["DELETE"]}]}`):               `not "DELETE"`,
		with(`{"socket": "s", "rules": [{"resources": ["pods"], "operations": ["CREATE"]}]}`):            "unknown field",

		strings.Replace(valid, `"controllers"`, `"activity": {"socket": "s", "ignoredUsers": ["o"]}, "controllers"`, 1): "",
		strings.Replace(valid, `"controllers"`, `"activity": {"ignoredUsers": []}, "controllers"`, 1):                   "activity.socket",

		"{": "unexpected EOF",
	} {
		found, err := read(t, text)
		if problem == "" {
			if err != nil || found.Datastore.MaxBytes != 512<<20 {
				t.Errorf("%s: %v, %v", text, found, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%s: %v, not %q", text, err, problem)
		}
	}
}
