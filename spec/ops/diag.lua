--- diag: sample data.
return {
  calls = {{x = {3}}, {x = {3}, offset = 1}, {x = {3, 4}}, {x = {4, 3}, offset = -1}},
  empty = {{x = {0}}, {x = {0, 3}}}, smooth = true, large = {x = {317}},
  expect = {{{x = {1, 2}}, {{1, 0}, {0, 2}}}, {{x = {{1, 2}, {3, 4}}, offset = 1}, {2}}},
}
