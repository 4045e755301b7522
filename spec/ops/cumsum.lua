--- cumsum: sample data.
return {
  calls = {{x = {3, 4}, dim = 1}, {x = {3, 4}, dim = -1}, {x = {2, 3, 4}, dim = 2}},
  empty = {{x = {0, 3}, dim = 1}, {x = {0, 3}, dim = 2}},
  scalar = {{x = {}, dim = 1}}, smooth = true, large = {x = {317, 317}, dim = 2}, magnitude = 20,
  expect = {{{x = {1, 2, 3}, dim = 1}, {1, 3, 6}}},
}
