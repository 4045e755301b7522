--- triu: sample data.
return {
  calls = {{x = {3, 4}}, {x = {2, 4, 3}, diagonal = -1}, {x = {3, 4}, diagonal = 2}}, empty = {{x = {0, 4}}},
  smooth = true, large = {x = {317, 317}},
  expect = {{{x = {{1, 2}, {3, 4}}}, {{1, 2}, {0, 4}}}},
}
