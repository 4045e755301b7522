--- masked_select: sample data.
return {
  calls = {{x = {4, 3}, mask = {4, 3}}, {x = {4, 3}, mask = {3}}}, empty = {{x = {0, 3}, mask = {0, 3}}},
  scalar = {{x = {}, mask = {}}},
  smooth = true, large = {x = {317, 317}, mask = {317, 317}},
  expect = {{{x = {1, 2, 3}, mask = {true, false, true}}, {1, 3}}},
}
