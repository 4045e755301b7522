--- rand: sample data.
return {
  calls = {{shape = {3, 4}}, {shape = {37}}}, empty = {{shape = {0, 4}}}, scalar = {{shape = {}}},
  special = false,
  large = {shape = {100003}},
}
