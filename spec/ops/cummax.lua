--- cummax: sample data.
return {
  gen = {x = {distinct = true}},
  calls = {{x = {3, 4}, dim = 1}, {x = {3, 4}, dim = -1}, {x = {2, 3, 4}, dim = 2}},
  empty = {{x = {0, 3}, dim = 1}, {x = {0, 3}, dim = 2}}, scalar = {{x = {}, dim = 1}},
  large = {x = {317, 317}, dim = 2},
  expect = {{{x = {1, 3, 2}, dim = 1}, {1, 3, 3}, {1, 2, 2}}},
}
