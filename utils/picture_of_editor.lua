-- Neovim as `take_pictures.py` shows it: a modular file with an unsaved line, what the server says about it, and what it
-- generates. The environment names the server, the line to insert and the line below it, the class to preview, and the
-- file that is written when all is shown.
vim.o.number, vim.o.termguicolors, vim.o.signcolumn, vim.o.swapfile = true, true, "yes", false
vim.cmd("colorscheme morning")
vim.cmd("highlight LspCodeLens guifg=#6060a0 gui=italic | highlight NonText guibg=bg | set fillchars=eob:\\ ")
vim.cmd("highlight NormalFloat guibg=#fff6d5 guifg=black | highlight FloatBorder guibg=#fff6d5 guifg=#804000")
vim.cmd("highlight DiagnosticFloatingWarn guifg=#804000 | set nowrap")
vim.diagnostic.config({ virtual_text = false })
vim.fn.sign_define("DiagnosticSignWarn", { text = "W", texthl = "DiagnosticSignWarn" })

local function preview(command)
  local asked = { command = "modular-converter.generated", arguments = command.arguments }
  vim.lsp.buf_request(0, "workspace/executeCommand", asked, function(_, found)
    vim.cmd("botright vnew | vertical resize 60 | setlocal buftype=nofile filetype=python nonumber signcolumn=no")
    vim.api.nvim_buf_set_lines(0, 0, -1, false, vim.split(found.text, "\n"))
    vim.cmd("file " .. vim.fn.fnameescape("generated: " .. found.name) .. " | wincmd p")
    vim.diagnostic.open_float({ border = "single", scope = "line" })
    vim.defer_fn(function() vim.fn.writefile({ "" }, vim.env.PICTURE_DONE) end, 500)
  end)
end

local function show_class()
  for _, lens in ipairs(vim.lsp.codelens.get(0)) do
    if lens.command.arguments[2] == vim.env.PICTURE_CLASS then preview(lens.command) end
  end
end

local function attached(client, buffer)
  local line = vim.fn.search(vim.fn.escape(vim.env.PICTURE_BELOW, "[]*."))
  vim.api.nvim_buf_set_lines(buffer, line, line, false, { vim.env.PICTURE_LINE })
  vim.api.nvim_win_set_cursor(0, { line + 1, 8 })
  vim.cmd("normal! zt5\25")
  vim.defer_fn(vim.lsp.codelens.refresh, 3000)
  vim.defer_fn(show_class, 6000)
end

vim.api.nvim_create_autocmd("FileType", { pattern = "python", once = true, callback = function()
  local id = vim.lsp.start_client({ cmd = { vim.env.PICTURE_SERVER, "lsp" }, root_dir = vim.fn.getcwd(), on_attach = attached })
  vim.lsp.buf_attach_client(0, id)
end })
