--- clone: sample data.
return {
  calls = {{x = {3, 4}}, {x = {37}}}, empty = {{x = {0, 4}}}, scalar = {{x = {}}}, large = {x = {317, 317}},
  smooth = true,
  expect = {{{x = {5, 6}}, {5, 6}}},
}
