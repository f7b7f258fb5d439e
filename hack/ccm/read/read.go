// Package read answers for the cloud-controller-managers: how they read a configuration in INI, and which keys the types
// of their configurations have.
package read

import (
	"encoding"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"

	"gopkg.in/gcfg.v1"
)

// Section is a section of a configuration.
type Section struct {
	Name string `json:"name"`
	// Each: whether its members are named sections, such as [ServiceOverride "1"].
	Each bool `json:"each"`
	Keys Keys `json:"keys"`
}

// Keys are the types of keys, by their names.
type Keys map[string]string

type answer[Config any] struct {
	Error   string
	Ignored string
	Config  Config
}

// Main prints the keys when the argument is "keys". Otherwise it reads configurations, a JSON list of texts, and prints for
// each: the error, what was ignored, and the configuration.
func Main[Config any](validate func(*Config) error, keys map[string]any) {
	if len(os.Args) > 1 && os.Args[1] == "keys" {
		write(keys)
		return
	}
	var texts []string
	if err := json.NewDecoder(os.Stdin).Decode(&texts); err != nil {
		panic(err)
	}
	answers := make([]answer[Config], len(texts))
	for i, text := range texts {
		answer := &answers[i]
		err := gcfg.ReadStringInto(&answer.Config, text)
		if fatal := gcfg.FatalOnly(err); fatal != nil {
			answer.Error = fatal.Error()
		} else if err != nil {
			answer.Ignored = err.Error()
		}
		if answer.Error == "" {
			if err = validate(&answer.Config); err != nil {
				answer.Error = err.Error()
			}
		}
	}
	write(answers)
}

func write(value any) {
	if err := json.NewEncoder(os.Stdout).Encode(value); err != nil {
		panic(err)
	}
}

// SectionsOf returns the fields of structs as sections. The tag is that of the decoder: gcfg, json or yaml.
func SectionsOf(tag string, configs ...any) []Section {
	var sections []Section
	for _, config := range configs {
		each(tag, reflect.TypeOf(config), func(name string, field reflect.Type) {
			named := field.Kind() == reflect.Map
			if named {
				field = field.Elem()
			}
			sections = append(sections, Section{name, named, keysOf(tag, field)})
		})
	}
	return sections
}

// KeysOf returns the fields of a struct as keys.
func KeysOf(tag string, config any) Keys {
	return keysOf(tag, reflect.TypeOf(config))
}

func keysOf(tag string, config reflect.Type) Keys {
	keys := Keys{}
	each(tag, config, func(name string, field reflect.Type) {
		if kind := kindOf(tag, field); kind != "" {
			keys[name] = kind
		}
	})
	return keys
}

func each(tag string, config reflect.Type, visit func(string, reflect.Type)) {
	for config.Kind() == reflect.Pointer {
		config = config.Elem()
	}
	for i := range config.NumField() {
		field := config.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get(tag), ",")
		switch {
		case !field.IsExported() || name == "-":
		case field.Anonymous && tag == "json" && name == "":
			each(tag, field.Type, visit)
		case field.Anonymous && name == "":
			// yaml.v2 does not look into it; the type that is embedded is given on its own.
		case name != "":
			visit(name, field.Type)
		case tag == "yaml":
			visit(strings.ToLower(field.Name), field.Type)
		default:
			visit(field.Name, field.Type)
		}
	}
}

func kindOf(tag string, field reflect.Type) string {
	for field.Kind() == reflect.Pointer {
		field = field.Elem()
	}
	if tag == "gcfg" {
		_, isText := reflect.New(field).Interface().(encoding.TextUnmarshaler)
		switch {
		case isText && strings.HasSuffix(field.Name(), "Duration"):
			return "duration"
		case isText:
			panic(fmt.Sprintf("%s reads its text itself: teach kindOf what it takes", field))
		case field.Kind() == reflect.String && field != reflect.TypeFor[string]():
			return "word" // gcfg scans a type of its own, up to the first blank
		case field.Kind() == reflect.Map || field.Kind() == reflect.Struct:
			return "" // gcfg cannot set it
		}
	}
	switch field.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int32, reflect.Uint:
		return field.Kind().String()
	case reflect.Float32, reflect.Float64:
		return "float"
	case reflect.String:
		return "text"
	case reflect.Slice:
		return "list"
	case reflect.Map, reflect.Struct:
		return "map"
	}
	panic(fmt.Sprintf("%s: teach kindOf what it takes", field))
}
